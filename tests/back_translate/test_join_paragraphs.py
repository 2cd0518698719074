"""Sentences to paragraphs: as many lines as there were, whatever the sentences became."""

import json

import pytest

from back_translate import stage_files
from back_translate.join_paragraphs import join_files, main
from back_translate.split_paragraphs import split_file

PARAGRAPHS = ["One. Two! Three?", "", "Four", "10/10", "Five. " + "six " * 100]


def split(folder, replicas=1, paragraphs=PARAGRAPHS):
    (folder / "in.txt").write_text("".join(f"{paragraph}\n" for paragraph in paragraphs))
    paths = [str(folder / f"s{worker_id}of{replicas}.txt") for worker_id in range(replicas)]
    for worker_id, path in enumerate(paths):
        split_file(str(folder / "in.txt"), path, replicas, worker_id, "rules")
    return paths


@pytest.mark.parametrize("replicas", [1, 3])
def test_sentences_that_are_not_changed_give_the_paragraphs_back(tmp_path, replicas):
    paths = split(tmp_path, replicas)
    join_files(paths, paths, str(tmp_path / "para.txt"))
    assert (tmp_path / "para.txt").read_text().split("\n") == [*(line.strip() for line in PARAGRAPHS), ""]


def test_sentences_are_stripped_and_joined_by_one_space(tmp_path):
    paths = split(tmp_path, paragraphs=["A b. C d. E f.", "G."])
    (tmp_path / "t.txt").write_bytes(b"  un \r\n\n\tdeux \n\n")
    join_files([str(tmp_path / "t.txt")], paths, str(tmp_path / "bt/para/para_0.txt"))
    assert (tmp_path / "bt/para/para_0.txt").read_text() == "un deux\n\n"


@pytest.mark.parametrize("content, where", [("a\nb\n", "ends in paragraph 1"), ("a\n" * 9, "goes on after the last")])
def test_another_number_of_sentences_is_refused(tmp_path, content, where):
    paths = split(tmp_path, paragraphs=PARAGRAPHS[:4])
    (tmp_path / "t.txt").write_text(content)
    found = content.count("\n")
    message = f"t.txt {where}.*it has {found} lines, .*counts 5 sentences.*translate again"
    with pytest.raises(ValueError, match=message):
        join_files([str(tmp_path / "t.txt")], paths, str(tmp_path / "para.txt"))
    assert not (tmp_path / "para.txt").exists()


def test_shards_must_be_all_in_order_and_of_one_file(tmp_path):
    paths = split(tmp_path, 3)
    output = str(tmp_path / "para.txt")
    for wrong in ([paths[1], paths[0], paths[2]], paths[:2], [paths[0], paths[0], paths[1]]):
        with pytest.raises(ValueError, match="expected those of all replicas=3, in the order of worker_id"):
            join_files(wrong, wrong, output)
    with pytest.raises(ValueError, match="expected as many files as split_files, got 2 and 3"):
        join_files(paths[:2], paths, output)
    (tmp_path / "other").mkdir()
    other = split(tmp_path / "other", 3, PARAGRAPHS[::-1])
    with pytest.raises(ValueError, match="were not made from one file in one way"):
        join_files(paths, [*paths[:2], other[2]], output)
    (tmp_path / "mine.txt").write_text("One.\n")
    with pytest.raises(ValueError, match="expected files of python -m back_translate.split_paragraphs"):
        join_files([str(tmp_path / "mine.txt")] * 3, [str(tmp_path / "mine.txt")] * 3, output)


def test_a_finished_file_is_kept_and_that_of_other_translations_refused(tmp_path, capsys):
    paths = split(tmp_path)
    output = tmp_path / "para.txt"
    join_files(paths, paths, str(output))
    written = output.stat().st_mtime_ns
    join_files(paths, paths, str(output))
    assert "already complete" in capsys.readouterr().out
    assert output.stat().st_mtime_ns == written
    (tmp_path / "t.txt").write_text("x\n" * stage_files.count_lines(paths[0]))
    with pytest.raises(ValueError, match="other settings .input_sha256"):
        join_files([str(tmp_path / "t.txt")], paths, str(output))


def test_of_two_workers_that_finish_together_one_joins_and_none_fails(tmp_path, monkeypatch, capsys):
    paths = split(tmp_path)
    output = str(tmp_path / "para.txt")
    flags = {"input_file": paths, "split_file": paths, "output_file": output}
    monkeypatch.setattr("back_translate.join_paragraphs.FLAGS", type("Flags", (), flags))
    with stage_files.create(output, {}):
        main()
    assert "para.txt.part is being written by another process" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["[]", "3", "{}", "[" * 100_000, '{"stage": "split"}', '{"stage": "split", '])
def test_stage_files_of_the_wrong_shape_are_refused(tmp_path, content):
    paths = split(tmp_path)
    (tmp_path / f"{paths[0]}.json").write_text(content)
    with pytest.raises(ValueError, match="s0of1.txt"):
        join_files(paths, paths, str(tmp_path / "para.txt"))


@pytest.mark.parametrize("replicas", [10**18, -1, 1.0, "1"])
def test_a_number_of_workers_beyond_reason_is_refused(tmp_path, replicas):
    paths = split(tmp_path)
    settings = json.loads((tmp_path / f"{paths[0]}.json").read_text())
    (tmp_path / f"{paths[0]}.json").write_text(json.dumps(settings | {"replicas": replicas}))
    with pytest.raises(ValueError, match="replicas="):
        join_files(paths, paths, str(tmp_path / "para.txt"))


@pytest.mark.parametrize("count", ["9" * 10, "-1", "1.0", "", "9" * 5000])
def test_a_count_that_is_no_number_of_sentences_is_refused(tmp_path, count):
    paths = split(tmp_path)
    (tmp_path / f"{paths[0]}.counts.json").write_text(f"[\n{count}\n]\n")
    with pytest.raises(ValueError, match="counts.json, line 2: expected a number"):
        join_files(paths, paths, str(tmp_path / "para.txt"))
