"""augmentation/back_translation.py: files of paraphrases and the length filter."""

import pickle
import re

import pytest

from augmentation import back_translation
from augmentation.back_translation import accept, is_acceptable, open_paraphrases, paraphrase_path


def write_file(tmp_path, content):
    path = tmp_path / "para_0.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_files_are_laid_out_as_in_the_original_release():
    assert paraphrase_path("bt", "unsup_in", 0.9, 3) == "bt/unsup_in/sample_0.9/para/para_3.txt"
    assert paraphrase_path("bt", "unsup_ext", 1, 0) == "bt/unsup_ext/sample_1.0/para/para_0.txt"


@pytest.mark.parametrize("last_line_end", ["", "\n"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_one_line_is_one_text_whatever_the_line_ends(tmp_path, line_end, last_line_end):
    lines = ["a film", "", "  spaces around ", "ünïcödé 電影 😀", "last"]
    path = write_file(tmp_path, line_end.join(lines) + last_line_end)
    assert open_paraphrases(path, 5).read(0, 5) == [line.strip() for line in lines]


def test_only_line_feeds_end_a_line(tmp_path):
    lines = ["one\x85line", "two\u2028lines", "three\rreturns", "four\x0cfeeds\x1c."]
    assert open_paraphrases(write_file(tmp_path, "\n".join(lines)), 4).read(0, 4) == lines


def test_a_byte_order_mark_is_no_part_of_the_first_text(tmp_path):
    assert open_paraphrases(write_file(tmp_path, "\ufefffirst\nsecond\n"), 2).read(0, 2) == ["first", "second"]


def test_any_range_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(back_translation, "LINES_PER_OFFSET", 4)
    lines = [f"line {number} " + "é" * number for number in range(17)]
    lines = [line.strip() for line in lines]
    paraphrases = open_paraphrases(write_file(tmp_path, "\n".join(lines)), 17)
    assert len(paraphrases.offsets) == 5
    for start in range(18):
        for stop in range(start, 18):
            assert paraphrases.read(start, stop) == lines[start:stop]


def test_a_checked_file_can_be_sent_to_another_process(tmp_path):
    paraphrases = open_paraphrases(write_file(tmp_path, "one\ntwo\n"), 2)
    assert pickle.loads(pickle.dumps(paraphrases)).read(1, 2) == ["two"]


@pytest.mark.parametrize("start, stop", [(-1, 1), (1, 0), (0, 3), (3, 3)])
def test_a_range_outside_the_file_is_refused(tmp_path, start, stop):
    paraphrases = open_paraphrases(write_file(tmp_path, "one\ntwo\n"), 2)
    with pytest.raises(ValueError, match=f"got start={start}, stop={stop}"):
        paraphrases.read(start, stop)


def test_a_file_of_no_texts_is_empty(tmp_path):
    assert open_paraphrases(write_file(tmp_path, ""), 0).read(0, 0) == []


@pytest.mark.parametrize(
    "content, where",
    [
        ("", "ends before line 1: it has 0 lines, expected 3"),
        ("one\ntwo\n", "ends before line 3: it has 2 lines, expected 3"),
        ("one\ntwo\nthree\nfour", "goes on after line 3: it has 4 lines, expected 3"),
        ("one\ntwo\nthree\n\n", "goes on after line 3: it has 4 lines, expected 3"),
    ],
)
def test_the_number_of_lines_must_be_that_of_the_texts(tmp_path, content, where):
    path = write_file(tmp_path, content)
    with pytest.raises(ValueError, match=re.escape(f"{path} {where}") + ".*make it again"):
        open_paraphrases(path, 3)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="para_7.txt is missing, expected a file of paraphrases: make it"):
        open_paraphrases(paraphrase_path(str(tmp_path), "unsup_in", 0.9, 7), 3)


def test_invalid_utf8_is_refused_with_its_line(tmp_path):
    path = write_file(tmp_path, b"one\ntwo\ncaf\xe9 \nfour\n")
    with pytest.raises(ValueError, match=re.escape(f"{path} line 3 is not valid UTF-8") + ".*byte 3"):
        open_paraphrases(path, 4)


def test_a_file_that_changes_after_the_check_is_noticed(tmp_path):
    path = write_file(tmp_path, "one\ntwo\nthree\n")
    paraphrases = open_paraphrases(path, 3)
    write_file(tmp_path, "one\ntwo\n")
    with pytest.raises(ValueError, match="ends before line 3, expected 3 lines: it has changed"):
        paraphrases.read(1, 3)
    write_file(tmp_path, b"one\nt\xffo\nthree\n")
    with pytest.raises(ValueError, match="line 2 is not valid UTF-8"):
        paraphrases.read(1, 3)


@pytest.mark.parametrize(
    "original_length, paraphrase_length, accepted",
    [
        (10, 10, True),
        (9, 10, False),
        (10, 9, False),
        (0, 20, False),
        (20, 0, False),
        (0, 0, False),
        (100, 50, True),
        (100, 49, False),
        (100, 150, True),
        (100, 151, False),
        (11, 16, True),  # 5/11
        (11, 17, False),  # 6/11
        (200, 101, True),  # the difference is a share of the original's length, not of the paraphrase's
    ],
)
def test_lengths_decide_whether_a_paraphrase_is_taken(original_length, paraphrase_length, accepted):
    assert is_acceptable(original_length, paraphrase_length) is accepted


def test_lengths_are_characters_and_not_bytes():
    assert accept([20, 20], ["é" * 20, "é" * 9]) == [True, False]


def test_paraphrases_that_do_not_fit_are_not_taken():
    originals = ["a long enough text", "short", "another long enough text"]
    paraphrases = ["a sufficient text", "a short text", "other"]
    assert accept(list(map(len, originals)), paraphrases) == [True, False, False]


def test_an_equal_paraphrase_counts_as_accepted():
    assert accept([14] * 3, ["the same words"] * 3) == [True] * 3
    assert accept([], []) == []


def test_every_text_needs_a_paraphrase():
    with pytest.raises(ValueError, match="got 1 paraphrases of 2 texts"):
        accept([3, 3], ["one"])
