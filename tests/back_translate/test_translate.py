"""A file of sentences to a file of translations: kills, restarts, workers, lines that must stay lines."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from back_translate import engines, stage_files, translate
from back_translate.join_paragraphs import join_files
from back_translate.split_paragraphs import split_file
from back_translate.translate import translate_file
from tests.back_translate.small_translation import FunctionEngine, write_model
from tests.full_disk import full_disk
from tests.programs import run_main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SAMPLING = {"temperature": 0.8, "seed": 1, "top_k": 0, "top_p": 1.0, "batch_tokens": 256}
SENTENCES = [f"the cat has {number} dogs, Tom!" for number in range(40)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def sentences_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("sentences") / "sentences.txt"
    path.write_text("".join(f"{sentence}\n" for sentence in SENTENCES))
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def engines_by_model():
    """Loads each model once for all seeds: what costs time is compiling."""
    loaded, load = {}, engines.create_engine

    def create_engine(name, model, seed, **options):
        engine = loaded.setdefault(model, None) or load(name, model, seed=seed, **options)
        loaded[model], engine.seed = engine, seed
        return engine

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(engines, "create_engine", create_engine)
        yield


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, model, sentences_path):
    path = tmp_path_factory.mktemp("whole") / "out.txt"
    translate_file(sentences_path, str(path), "tensorflow", model, SAMPLING, block_size=3)
    return path.read_bytes()


def use_function(monkeypatch, function):
    engine = FunctionEngine(function)
    monkeypatch.setattr(engines, "create_engine", lambda *args, **options: engine)
    return engine


def run(folder, lines, **options):
    """Translates lines with the engine that is in place; returns the lines of the result."""
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    (folder / "model").mkdir(exist_ok=True)
    options = {"engine": "tensorflow", "model": str(folder / "model"), "sampling": SAMPLING} | options
    translate_file(str(folder / "in.txt"), str(folder / "out.txt"), **options)
    return (folder / "out.txt").read_text(encoding="utf-8").split("\n")[:-1]


# ---- stopped and continued ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_process_is_continued_and_the_result_is_the_same_file(tmp_path, model, sentences_path, uninterrupted):
    output, part = tmp_path / "out.txt", tmp_path / "out.txt.part"
    flags = {"input_file": sentences_path, "output_file": output, "model": model, "seed": 1, "block_size": 3}
    command = [sys.executable, "-m", "back_translate.translate", *(f"--{name}={flags[name]}" for name in flags)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.time() + 300
    while not (part.exists() and part.read_bytes().count(b"\n") >= 6) and process.poll() is None:
        assert time.time() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not output.exists()
    kept = part.read_bytes()
    assert 6 <= kept.count(b"\n") < len(SENTENCES)
    # A kill may also come while a block is written.
    part.write_bytes(kept[: kept.rindex(b"\n") + 1] + b"whole line of an unfinished block\nhalf a li")
    translate_file(sentences_path, str(output), "tensorflow", model, SAMPLING, block_size=3)
    assert output.read_bytes() == uninterrupted
    assert not part.exists()


@pytest.mark.parametrize("num_lines, kept", [(0, 0), (3, 0), (4, 4), (7, 4), (8, 8), (9, 8), (10, 8)])
def test_no_sentence_of_a_whole_block_is_translated_again(tmp_path, monkeypatch, num_lines, kept):
    lines = [f"line {number}" for number in range(10)]
    engine = use_function(monkeypatch, str.upper)
    expected = run(tmp_path, lines, block_size=4)
    assert expected == [line.upper() for line in lines]
    (tmp_path / "out.txt").unlink()
    (tmp_path / "out.txt.part").write_text("".join(f"{line}\n" for line in expected[:num_lines]))
    engine.asked.clear()
    assert run(tmp_path, lines, block_size=4) == expected
    assert engine.asked == lines[kept:]


def test_a_finished_file_is_kept_and_other_settings_are_refused(tmp_path, monkeypatch, capsys):
    engine = use_function(monkeypatch, str.upper)
    run(tmp_path, ["one"])
    engine.asked.clear()
    assert run(tmp_path, ["one"], sampling=SAMPLING | {"batch_tokens": 1}, block_size=1) == ["ONE"]
    assert not engine.asked
    assert "already complete" in capsys.readouterr().out
    for changes, message in (
        ({"sampling": SAMPLING | {"seed": 2}}, "seed: was 1, now 2"),
        ({"sampling": SAMPLING | {"temperature": 0.7}}, "temperature: was 0.8, now 0.7"),
        ({"engine": "ctranslate2"}, "engine: was 'tensorflow', now 'ctranslate2'"),
        ({"protect": "Tom"}, "protect_sha256: was ''"),
    ):
        with pytest.raises(ValueError, match=f"other settings .{message}"):
            run(tmp_path, ["one"], **changes)
    with pytest.raises(ValueError, match="other settings .input_sha256: was"):
        run(tmp_path, ["two"])
    (tmp_path / "model/weights.npz").write_text("another model")
    with pytest.raises(ValueError, match="other settings .model_sha256: was"):
        run(tmp_path, ["one"])


def test_a_part_of_other_settings_is_refused_but_a_failed_start_is_not_in_the_way(tmp_path, monkeypatch):
    use_function(monkeypatch, str.upper)
    run(tmp_path, ["one", "two"])
    os.rename(tmp_path / "out.txt", tmp_path / "out.txt.part")
    with pytest.raises(ValueError, match="out.txt.part was made with other settings .seed: was 1, now 2"):
        run(tmp_path, ["one", "two"], sampling=SAMPLING | {"seed": 2})
    (tmp_path / "out.txt.part").write_text("")
    assert run(tmp_path, ["one", "two"], sampling=SAMPLING | {"seed": 2}) == ["ONE", "TWO"]


# ---- the model's own sampling ---------------------------------------------------------------------------------------


def recommend(folder, **sampling):
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps({"sampling": sampling}))


@pytest.fixture
def asked_options(monkeypatch):
    """The options that engines are made with."""
    options = []

    def create_engine(_name, _model, **given):
        options.append(given)
        return FunctionEngine(str.upper)

    monkeypatch.setattr(engines, "create_engine", create_engine)
    return options


@pytest.mark.parametrize(
    "recommended, flags, used",
    [
        ({}, [], (0, 1.0)),
        ({"top_p": 0.9}, [], (0, 0.9)),
        ({"top_k": 10}, [], (10, 1.0)),
        ({"top_p": 0.9}, ["--top_k=5"], (5, 0.9)),
        ({"top_p": 0.9, "top_k": 7}, ["--top_k=0", "--top_p=1"], (0, 1.0)),
    ],
)
def test_what_flags_leave_open_the_model_says_else_all_subwords_are_drawn_from(
    tmp_path, asked_options, recommended, flags, used
):
    recommend(tmp_path, **recommended)
    (tmp_path / "in.txt").write_text("one\n")
    paths = {"input_file": tmp_path / "in.txt", "output_file": tmp_path / "out.txt", "model": tmp_path / "model"}
    run_main(translate, *(f"--{name}={path}" for name, path in paths.items()), *flags)
    assert [(options["top_k"], options["top_p"]) for options in asked_options] == [used]
    stored = stage_files.read_settings(str(tmp_path / "out.txt"))
    assert (stored["top_k"], stored["top_p"]) == used


def test_a_finished_file_is_compared_by_the_sampling_that_was_used_wherever_it_was_said(tmp_path, asked_options):
    recommend(tmp_path, top_p=0.9)
    open_sampling = SAMPLING | {"top_k": None, "top_p": None}
    run(tmp_path, ["one"], sampling=open_sampling)
    run(tmp_path, ["one"], sampling=SAMPLING | {"top_p": 0.9})
    assert len(asked_options) == 1  # the second time it was complete
    with pytest.raises(ValueError, match="other settings .top_p: was 0.9, now 1.0"):
        run(tmp_path, ["one"], sampling=SAMPLING)


def test_a_recommendation_of_something_else_is_refused(tmp_path, asked_options):
    recommend(tmp_path, temperature=0.5)
    with pytest.raises(
        ValueError, match="config.json: sampling={'temperature': 0.5}: expected no other names than top"
    ):
        run(tmp_path, ["one"])
    assert not asked_options and not list(tmp_path.glob("out.txt*"))


# ---- the native engine ----------------------------------------------------------------------------------------------


def paraphrase(folder, lines, model, seed=0, replicas=1):
    """The four stages; returns the content of the joined file."""
    folder.mkdir()
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    files = {"split": [], "forward": [], "backward": []}
    for worker_id in range(replicas):
        for name in files:
            files[name].append(str(folder / f"{name}_{worker_id}.txt"))
        split_file(str(folder / "in.txt"), files["split"][-1], replicas, worker_id, "rules")
        for number, (source, target) in enumerate((("split", "forward"), ("forward", "backward"))):
            sampling = SAMPLING | {"seed": 2 * seed + number}
            translate_file(files[source][-1], files[target][-1], "tensorflow", model, sampling)
    join_files(files["backward"], files["split"], str(folder / "para.txt"))
    return (folder / "para.txt").read_bytes()


def test_three_workers_give_what_one_gives_and_other_seeds_other_paraphrases(tmp_path, model):
    lines = [
        "The cat sat. It was good!",
        "",
        "10/10",
        *(f"Tom has {number} dogs. The best film." for number in range(8)),
    ]
    results = [paraphrase(tmp_path / str(seed), lines, model, seed) for seed in range(3)]
    assert paraphrase(tmp_path / "again", lines, model, 0) == results[0]
    assert paraphrase(tmp_path / "workers", lines, model, 0, replicas=3) == results[0]
    assert len(set(results)) == 3
    assert all(result.count(b"\n") == len(lines) for result in results)
    assert results[0].split(b"\n")[1:3] == [b"", b"10/10"]


# ---- lines stay lines -----------------------------------------------------------------------------------------------


def test_lines_without_letters_do_not_reach_the_model(tmp_path, monkeypatch):
    engine = use_function(monkeypatch, str.upper)
    assert run(tmp_path, ["", "10/10", "a  b\x85c", " … ", "é"]) == ["", "10/10", "A B C", " … ", "É"]
    assert engine.asked == ["a b c", "é"]


@pytest.mark.parametrize("drawn", ["a\nb", "a\r\nb", " a \x85 b ", "a\u2028b"])
def test_a_translation_stays_one_line_whatever_characters_the_model_draws(tmp_path, monkeypatch, drawn):
    use_function(monkeypatch, lambda sentence: drawn)
    assert run(tmp_path, ["one", "two"]) == ["a b", "a b"]


def test_half_a_surrogate_pair_that_a_model_draws_does_not_stop_the_run(tmp_path, monkeypatch):
    use_function(monkeypatch, lambda sentence: "a\ud800b")
    assert run(tmp_path, ["one"]) == ["a?b"]


def test_an_engine_that_loses_a_sentence_is_noticed(tmp_path, monkeypatch):
    engine = use_function(monkeypatch, str.upper)
    engine.translate = lambda sentences: sentences[1:]
    with pytest.raises(ValueError):
        run(tmp_path, ["one", "two"])
    assert not (tmp_path / "out.txt").exists()


def test_windows_line_ends_and_a_missing_last_one_make_no_difference(tmp_path, monkeypatch):
    use_function(monkeypatch, str.upper)
    results = []
    for number, content in enumerate((b"one\ntwo\n", b"\xef\xbb\xbfone\r\ntwo")):
        folder = tmp_path / str(number)
        (folder / "model").mkdir(parents=True)
        (folder / "in.txt").write_bytes(content)
        translate_file(str(folder / "in.txt"), str(folder / "out.txt"), "tensorflow", str(folder / "model"), SAMPLING)
        results.append((folder / "out.txt").read_bytes())
    assert results == [b"ONE\nTWO\n"] * 2


def test_progress_tells_speed_and_time_left_where_there_is_no_terminal(tmp_path, monkeypatch, capsys):
    use_function(monkeypatch, str.upper)
    run(tmp_path, ["one", "two", "three"], block_size=2)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["2/3 sentences", "3/3 sentences"]
    assert all("sentences/s" in line and line.endswith(" left") for line in lines)


# ---- protection -----------------------------------------------------------------------------------------------------


def test_protected_terms_come_through_both_translations_or_the_original_stays(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "back").mkdir()
    lines = ["I met Acme in 1999.", "It is good.", "Acme is lost."]
    use_function(monkeypatch, lambda text: "perdu" if "lost" in text else text.replace("I met", "J'ai vu"))
    french = run(tmp_path / "there", lines, protect="Acme")
    assert french == ["J'ai vu Acme in 1999.", "It is good.", "Acme is lost."]
    use_function(
        monkeypatch, lambda text: text.replace("J'ai vu", "I saw").replace("good", "fine").replace("Acme", "!")
    )
    original_file = str(tmp_path / "there/in.txt")
    english = run(tmp_path / "back", french, protect="Acme", original_file=original_file)
    assert english == ["I saw Acme in 1999.", "It is fine.", "Acme is lost."]


def test_a_sentence_that_loses_a_term_on_the_way_back_falls_back_to_the_original_and_not_to_french(
    tmp_path, monkeypatch
):
    (tmp_path / "originals.txt").write_text("Acme is big.\nIt is big.\n")
    use_function(monkeypatch, lambda text: "lost")
    options = {"protect": "Acme", "original_file": str(tmp_path / "originals.txt")}
    assert run(tmp_path, ["Acme est grand.", "C'est grand."], **options) == ["Acme is big.", "lost"]


BAD_SETTINGS = {
    "original_file=.*: expected only together with --protect": {"original_file": "in.txt"},
    "original_file=.* has 1 lines, expected 2": {"original_file": "one.txt", "protect": "a"},
    "model=.*/none is not a folder": {"model": "none"},
    "protect=.*none.txt: there is no such file": {"protect": "none.txt"},
}


@pytest.mark.parametrize("message", BAD_SETTINGS)
def test_bad_settings_are_named_before_anything_is_written(tmp_path, monkeypatch, message):
    use_function(monkeypatch, str.upper)
    (tmp_path / "one.txt").write_text("one\n")
    settings = dict(BAD_SETTINGS[message])
    for name in ("original_file", "model"):
        if name in settings:
            settings[name] = str(tmp_path / settings[name])
    with pytest.raises(ValueError, match=message):
        run(tmp_path, ["one", "two"], **settings)
    assert not list(tmp_path.glob("out.txt*"))


def test_the_sum_of_a_model_notices_names_and_contents(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    sums = set()
    for name, content in (("a", "1"), ("a", "2"), ("b", "2")):
        (folder / name).write_text(content)
        sums.add(translate.sha256_of_folder(str(folder)))
    assert len(sums) == 3


def test_lines_are_read_one_by_one(tmp_path):
    (tmp_path / "in.txt").write_bytes(b"one\ntwo\nbad \xff\n")
    lines = stage_files.read_lines(str(tmp_path / "in.txt"))
    assert [next(lines), next(lines)] == ["one", "two"]
    with pytest.raises(ValueError, match="line 3 is not UTF-8"):
        next(lines)


def test_a_full_disk_is_named_with_the_file_and_what_to_do(tmp_path, monkeypatch, sentences_path):
    use_function(monkeypatch, str.upper)
    (tmp_path / "model").mkdir()
    output = tmp_path / "out.txt"
    message = r"out.txt cannot be written \(.*\): make room there, and give the same"
    with full_disk(500), pytest.raises(ValueError, match=message):
        translate_file(sentences_path, str(output), "tensorflow", str(tmp_path / "model"), SAMPLING, block_size=3)
    assert not output.exists()
    translate_file(sentences_path, str(output), "tensorflow", str(tmp_path / "model"), SAMPLING, block_size=3)
    assert output.read_text().split("\n")[:-1] == [sentence.upper() for sentence in SENTENCES]
