"""Paragraphs to sentences: whose rules, which pieces, whose lines; every bad input."""

import json
import sys
import types

import pytest

from back_translate import split_paragraphs, stage_files
from back_translate.split_paragraphs import cut_long, shard_of, split_by_rules, split_file, split_paragraph

SENTENCES = [
    ("It rained. We stayed at home.", ["It rained.", "We stayed at home."]),
    ("Mr. Smith met Dr. J. R. Jones. They talked.", ["Mr. Smith met Dr. J. R. Jones.", "They talked."]),
    ("J.R.R. Tolkien wrote it. So did I. Then I left.", ["J.R.R. Tolkien wrote it.", "So did I.", "Then I left."]),
    ("It cost 3.50 euros. It was 1.5 m long.", ["It cost 3.50 euros.", "It was 1.5 m long."]),
    ("He lives in the U.S. Navy base. He left at 5 p.m. The sun set.", [
        "He lives in the U.S. Navy base.", "He left at 5 p.m.", "The sun set."
    ]),
    ("See Fig. 3 on p. 12. No. 5 is alive. No. It is not.", [
        "See Fig. 3 on p. 12.", "No. 5 is alive.", "No.", "It is not."
    ]),
    ("I love art. Paintings, etc. are dear, e.g. this one.", [
        "I love art.", "Paintings, etc. are dear, e.g. this one."
    ]),
    ('"Stop!" he said. "Why?" (I did not know.) She left.', [
        '"Stop!" he said.', '"Why?"', "(I did not know.)", "She left."
    ]),
    ("He said: “Go.” We went… and then... But no.", ["He said: “Go.”", "We went… and then...", "But no."]),
    ("what a film!! i loved it. really?! yes", ["what a film!!", "i loved it.", "really?!", "yes"]),
    ("1. Read this. 2. Go to www.example.com. 3. Rest.", ["1. Read this.", "2. Go to www.example.com.", "3. Rest."]),
    ("One.\x85Two.\u2028Three.\x0bFour", ["One.", "Two.", "Three.", "Four"]),
    ("no stop at all", ["no stop at all"]),
]  # fmt: skip


@pytest.mark.parametrize("text, sentences", SENTENCES, ids=[text[:20] for text, _ in SENTENCES])
def test_sentences_are_found_without_any_download(text, sentences):
    assert split_by_rules(text) == sentences


def test_texts_of_any_form_are_split_in_linear_time():
    for text in ("Mr. " * 20_000, "." * 100_000 + "a", "a" * 100_000 + ". B", "a." + " " * 100_000 + "b"):
        assert "".join(split_by_rules(text)).replace(" ", "") == text.replace(" ", "")


# ---- pieces of 300 characters or more -------------------------------------------------------------------------------


def test_a_sentence_of_299_characters_stays_whole_and_one_of_300_is_cut():
    sentence = ("word, " * 60)[:299]
    assert cut_long(sentence) == [sentence]
    assert len(cut_long(sentence + "x")) > 1


def test_long_sentences_are_cut_at_stops_first_and_the_stop_stays_with_the_left_piece():
    sentence = "a.b" * 99 + "; c, d"  # 303 characters
    pieces = cut_long(sentence)
    assert "".join(pieces) == sentence
    # The search starts at the sixth character of each piece. Stops are at 1, 4, 7, 10, 13, ...
    assert [len(piece) for piece in pieces[:4]] == [8, 6, 6, 6]
    assert all(piece.endswith(".") for piece in pieces[:-1])
    assert pieces[-1] == "b; c, d"


@pytest.mark.parametrize("delimiter", [";", ","])
def test_pieces_that_are_still_long_are_cut_at_the_next_mark_and_short_ones_are_left_alone(delimiter):
    short, long = f"One{delimiter} two{delimiter} three.", ("x" * 149 + delimiter) * 3 + "end."
    pieces = cut_long(short + long)
    assert pieces == [short, *["x" * 149 + delimiter] * 3, "end."]


def test_without_marks_pieces_end_at_the_first_space_after_a_hundred_characters():
    pieces = cut_long("abcd " * 100)
    assert [len(piece) for piece in pieces] == [105, 105, 105, 105, 80]
    assert all(piece.endswith(" ") for piece in pieces)


def test_without_spaces_pieces_have_101_characters():
    assert [len(piece) for piece in cut_long("x" * 300)] == [101, 101, 98]
    assert [len(piece) for piece in cut_long("x" * 404)] == [101, 101, 101, 101]


def test_no_piece_is_empty_or_long():
    text = "a" * 500 + " " * 400 + "b; " * 300 + "c, " * 300 + "." * 700
    pieces = split_paragraph(text, split_by_rules)
    assert all(piece == piece.strip() and 0 < len(piece) < 300 for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


@pytest.mark.parametrize("text", ["", "   ", "\t\x85"])
def test_an_empty_line_has_no_sentence(text):
    assert split_paragraph(text, split_by_rules) == []


@pytest.mark.parametrize("text", ["10/10", "... 5. 6! 7?", "-" * 1000])
def test_a_line_without_letters_is_one_sentence_of_any_length(text):
    assert split_paragraph(f" {text} ", split_by_rules) == [text]


# ---- nltk -----------------------------------------------------------------------------------------------------------


def install_nltk(monkeypatch, sent_tokenize):
    tokenize = types.ModuleType("nltk.tokenize")
    tokenize.sent_tokenize = sent_tokenize
    monkeypatch.setitem(sys.modules, "nltk", types.ModuleType("nltk"))
    monkeypatch.setitem(sys.modules, "nltk.tokenize", tokenize)


def test_nltk_is_used_where_it_is_installed_unless_the_rules_are_asked_for(tmp_path, monkeypatch, capsys):
    install_nltk(monkeypatch, lambda text: text.split(" / "))
    (tmp_path / "in.txt").write_text("One. Two / three\n")
    split_file(str(tmp_path / "in.txt"), str(tmp_path / "a.txt"))
    assert (tmp_path / "a.txt").read_text() == "One. Two\nthree\n"
    assert "found by nltk's punkt" in capsys.readouterr().out
    split_file(str(tmp_path / "in.txt"), str(tmp_path / "b.txt"), sentence_splitter="rules")
    assert (tmp_path / "b.txt").read_text() == "One.\nTwo / three\n"
    assert "found by the built-in rules" in capsys.readouterr().out


def test_nltk_without_its_data_is_no_nltk(monkeypatch):
    def fail(text):
        raise LookupError("Resource punkt_tab not found.")

    install_nltk(monkeypatch, fail)
    assert split_paragraphs.choose_splitter("auto") == ("rules", split_by_rules)
    with pytest.raises(ValueError, match="nltk or its data are not installed.*downloader punkt_tab"):
        split_paragraphs.choose_splitter("nltk")
    monkeypatch.setitem(sys.modules, "nltk.tokenize", None)
    assert split_paragraphs.choose_splitter("auto") == ("rules", split_by_rules)


# ---- files ----------------------------------------------------------------------------------------------------------


def test_the_first_workers_take_one_line_more():
    assert [shard_of(11, 4, worker_id) for worker_id in range(4)] == [(0, 3), (3, 6), (6, 9), (9, 11)]
    assert [shard_of(4, 4, worker_id) for worker_id in range(4)] == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_sentences_and_their_numbers_are_written(tmp_path):
    (tmp_path / "in.txt").write_bytes("\ufeffOne. Two!\r\n\r\n10/10\n\x0cA\x85b\u2028c\x1cd\re\nlast".encode())
    split_file(str(tmp_path / "in.txt"), str(tmp_path / "out/s.txt"), sentence_splitter="rules")
    assert (tmp_path / "out/s.txt").read_bytes().decode() == "One.\nTwo!\n10/10\nA\x85b\u2028c\x1cd\re\nlast\n"
    assert json.loads((tmp_path / "out/s.txt.counts.json").read_text()) == [2, 0, 1, 1, 1]
    assert list(split_paragraphs.read_counts(str(tmp_path / "out/s.txt"))) == [2, 0, 1, 1, 1]


def test_shards_of_three_workers_are_those_of_one_in_order(tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"Line {number}. And more.\n\n" for number in range(5)))
    contents = []
    for replicas in (1, 3):
        for worker_id in range(replicas):
            split_file(
                str(tmp_path / "in.txt"), str(tmp_path / f"{replicas}-{worker_id}"), replicas, worker_id, "rules"
            )
        paths = [tmp_path / f"{replicas}-{worker_id}" for worker_id in range(replicas)]
        counts = [count for path in paths for count in split_paragraphs.read_counts(str(path))]
        contents.append(("".join(path.read_text() for path in paths), counts))
    assert contents[0] == contents[1]
    assert len(contents[0][1]) == 10


def test_a_finished_file_is_kept_and_one_of_another_text_is_refused(tmp_path, capsys):
    source, output = tmp_path / "in.txt", tmp_path / "s.txt"
    source.write_text("One.\n")
    split_file(str(source), str(output), sentence_splitter="rules")
    written = output.stat().st_mtime_ns
    split_file(str(source), str(output), sentence_splitter="rules")
    assert "already complete" in capsys.readouterr().out
    assert output.stat().st_mtime_ns == written
    source.write_text("Two.\n")
    with pytest.raises(ValueError, match="made with other settings .input_sha256: was .*choose another place"):
        split_file(str(source), str(output), sentence_splitter="rules")
    output.unlink()
    split_file(str(source), str(output), sentence_splitter="rules")
    assert output.read_text() == "Two.\n"


def test_a_file_that_is_not_from_here_is_not_overwritten(tmp_path):
    (tmp_path / "in.txt").write_text("One.\n")
    (tmp_path / "s.txt").write_text("mine")
    with pytest.raises(ValueError, match="s.txt was made with other settings .stage: was None, now 'split'"):
        split_file(str(tmp_path / "in.txt"), str(tmp_path / "s.txt"))
    assert (tmp_path / "s.txt").read_text() == "mine"


def test_two_processes_do_not_write_one_file(tmp_path):
    path = str(tmp_path / "s.txt")
    with stage_files.create(path, {}) as file:
        with pytest.raises(stage_files.BusyError, match="s.txt.part is being written by another process"):
            with stage_files.create(path, {}):
                pass
        file.write(b"whole\n")
    assert (tmp_path / "s.txt").read_text() == "whole\n"


BAD_INPUTS = {
    "'.*/none.txt' is not a file": {"content": None},
    "in.txt is empty": {"content": b""},
    r"line 2 is not UTF-8 .invalid start byte at byte 3 of the line.*iconv": {"content": b"good\nbad\xff\n"},
    "replicas=3: the file has only 2 lines": {"content": b"one\ntwo\n", "replicas": 3},
    "worker_id=2: expected 0 to 1, since replicas=2": {"content": b"one\ntwo\n", "replicas": 2, "worker_id": 2},
}


@pytest.mark.parametrize("message", BAD_INPUTS)
def test_bad_input_is_named_before_anything_is_written(tmp_path, message):
    settings = dict(BAD_INPUTS[message])
    content = settings.pop("content")
    path = tmp_path / ("in.txt" if content is not None else "none.txt")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        split_file(str(path), str(tmp_path / "out/s.txt"), **settings)
    assert not (tmp_path / "out").exists()


def test_damaged_counts_are_named(tmp_path):
    (tmp_path / "s.txt.counts.json").write_text("[\n2,\nx\n]\n")
    with pytest.raises(ValueError, match="line 3: expected a number, found 'x'"):
        list(split_paragraphs.read_counts(str(tmp_path / "s.txt")))
