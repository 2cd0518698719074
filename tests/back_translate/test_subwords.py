import random
import re

import pytest

from back_translate.subwords import (
    SubwordVocabulary,
    build_vocabulary,
    count_words,
    join_words,
    split_words,
    unescape,
)
from tests.full_disk import full_disk

# As tensor2tensor writes them: reserved words with the end mark, all in quotes, "_" ends a word.
LINES = ["<pad>_", "<EOS>_", "the_", "th", "e_", "film_", ", _", " ", *"_abcdefhilmnotu;\\0123456789é,"]


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocab.subwords"
    path.write_text("".join(f"'{line}'\n" for line in LINES), encoding="utf-8")
    return SubwordVocabulary.read(str(path))


def pieces(vocabulary, text):
    return [vocabulary.subwords[number] for number in vocabulary.encode(text)]


def test_words_are_runs_of_letters_and_digits_and_runs_of_the_rest():
    assert split_words("The film, 2nd part... ok") == ["The", "film", ", ", "2nd", "part", "... ", "ok"]
    assert split_words(" a  b ") == [" ", "a", "  ", "b", " "]
    assert split_words("") == []


def test_the_longest_subword_from_the_left_is_taken(vocabulary):
    assert pieces(vocabulary, "the film, the") == ["the_", "film_", ", _", "the_"]
    assert pieces(vocabulary, "them") == ["th", "e", "m", "_"]


def test_underscores_backslashes_and_unknown_characters_are_escaped(vocabulary):
    assert pieces(vocabulary, "a_b") == ["a", "_", "\\", "u", "_", "b", "_"]
    assert pieces(vocabulary, "\\") == ["\\", "\\", "_"]
    assert pieces(vocabulary, "z") == ["\\", "1", "2", "2", ";", "_"]
    assert pieces(vocabulary, "\n") == ["\\", "1", "0", ";", "_"]


def test_every_text_comes_back(vocabulary):
    rng = random.Random(0)
    texts = ["", " ", "a_b \\u \\95; <EOS>_", "日本 film\t\n\u2028\x85", "e\u0301é 1½ ²"]
    for _ in range(300):
        texts.append("".join(rng.choice("ab _\\;u1é,\n\u202f日😀-'") for _ in range(rng.randrange(20))))
    for text in texts:
        assert vocabulary.decode(vocabulary.encode(text)) == text


def test_decoding_ends_at_the_end_token_and_leaves_out_padding(vocabulary):
    ids = vocabulary.encode("the film")
    assert vocabulary.decode([0, *ids, 1, *ids]) == "the film"


def test_a_number_that_is_no_character_becomes_a_mark():
    assert unescape("\\99999999;") == "\u3013"


def test_joining_puts_spaces_between_letters_only():
    assert join_words(["a", "b", ", ", "c"]) == "a b, c"


def test_a_written_vocabulary_reads_back_equal(vocabulary, tmp_path):
    path = str(tmp_path / "again.subwords")
    vocabulary.write(path)
    again = SubwordVocabulary.read(path)
    assert again.subwords == vocabulary.subwords and again.subwords[7] == " "


def test_a_disk_that_is_full_leaves_no_part_of_a_vocabulary(vocabulary, tmp_path):
    with full_disk(20), pytest.raises(OSError):
        vocabulary.write(str(tmp_path / "new.subwords"))
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.subwords"]


def test_windows_line_ends_and_missing_quotes_are_understood(vocabulary, tmp_path):
    path = tmp_path / "windows.subwords"
    path.write_bytes("".join(f"'{line}'\r\n" if line == " " else f"{line}\r\n" for line in LINES).encode())
    assert SubwordVocabulary.read(str(path)).subwords == vocabulary.subwords


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("'the'\n'a'\n")
    message = f"{path}: expected a vocabulary that begins with ('<pad>', '<EOS>'), found ['the', 'a']."
    with pytest.raises(ValueError, match=re.escape(message)):
        SubwordVocabulary.read(str(path))
    with pytest.raises(ValueError, match="does not exist: expected the path of a subword file"):
        SubwordVocabulary.read(str(tmp_path / "no such file"))


def test_a_vocabulary_without_escape_characters_says_what_it_lacks():
    with pytest.raises(ValueError, match=r"lacks the character '\\\\'"):
        SubwordVocabulary(["<pad>", "<EOS>", "a", "_"]).encode("z")


CORPUS = ["The film was good.", "The film was bad.", "Films are films: the filming, the filmed, the film."] * 5


def test_a_built_vocabulary_has_about_the_wanted_size_and_frequent_words_whole():
    counts = count_words(CORPUS)
    assert counts["The"] == 10 and counts["film"] == 15
    for size in (50, 60):
        vocabulary = build_vocabulary(counts, size)
        assert 0.8 * size <= len(vocabulary) <= 1.02 * size
        assert len(set(vocabulary.subwords)) == len(vocabulary)
        assert len(vocabulary.encode("the film")) == 2
        assert vocabulary.decode(vocabulary.encode("Zebra_ films!")) == "Zebra_ films!"


def test_rare_characters_are_spelled_as_numbers():
    vocabulary = build_vocabulary(count_words([*CORPUS, "naïve"]), 60)
    assert "ï" not in vocabulary.alphabet
    assert vocabulary.decode(vocabulary.encode("naïve")) == "naïve"


def test_too_small_a_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"vocab_size=10: the corpus has \d+ characters; use a larger one"):
        build_vocabulary(count_words(CORPUS), 10)
