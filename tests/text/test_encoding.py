"""text/encoding.py: words that are kept in files, and what is made of them."""

import numpy as np
import pytest

from augmentation import back_translation, word_level
from tests.text import small_data
from text import encoding, record_format
from text.datasets.source import Example
from text.encoding import RaggedTable, load_statistics, load_words, save_words, split_texts
from text.tokenization import Tokenizer

TEXTS = ["The film was good.", "", "A café, 電影 and the end", "!"]


@pytest.fixture
def data_dir(tmp_path):
    small_data.write_vocab(tmp_path / "vocab.txt")
    return str(tmp_path)


def create_tokenization(data_dir, max_seq_length=32):
    tokenizer = Tokenizer(f"{data_dir}/vocab.txt")
    return record_format.Tokenization(tokenizer.sha256, tokenizer.vocab_size, True, max_seq_length, True)


def create_statistics(texts):
    builder = word_level.StatisticsBuilder()
    builder.add(texts)
    return builder.finish()


# ---- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("texts", [TEXTS, ["", ""], ["one"]])
def test_words_come_back_from_their_file(data_dir, texts):
    words = split_texts(Tokenizer(f"{data_dir}/vocab.txt"), texts)
    path = f"{data_dir}/words.npz"
    save_words(path, words)
    found = load_words(path, len(texts))
    assert found.words == words.words
    for name in ("word_ids", "row_splits", "lengths"):
        np.testing.assert_array_equal(getattr(found, name), getattr(words, name))
    assert found.lengths.tolist() == [len(text) for text in texts]
    assert found.word_ids.dtype == np.int32 and found.row_splits.tolist()[-1] == len(found.word_ids)


def test_words_of_another_number_of_texts_or_of_a_damaged_file_are_refused(data_dir):
    path = f"{data_dir}/words.npz"
    save_words(path, split_texts(Tokenizer(f"{data_dir}/vocab.txt"), TEXTS))
    with pytest.raises(ValueError, match=r"words\.npz has the words of 4 texts, expected 5: delete it"):
        load_words(path, 5)
    with open(path, "r+b") as file:
        file.truncate(100)
    with pytest.raises(ValueError, match=r"words\.npz is damaged \(.*\): delete it, so that it is made again"):
        load_words(path, 4)
    np.savez(path, words=np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match=r"words\.npz is damaged"):
        load_words(path, 4)


@pytest.mark.parametrize(
    "changes",
    [
        {"word_ids": np.array([0, 1, 9])},
        {"word_ids": np.array([0.0, 1.0, 1.0])},
        {"row_splits": np.array([0, 3, 2])},
        {"row_splits": np.array([0, 4, 3])},
        {"lengths": np.array([2])},
    ],
)
def test_words_that_do_not_fit_their_texts_are_refused(tmp_path, changes):
    arrays = {"words": np.frombuffer(b"one\ntwo", np.uint8), "word_ids": np.array([0, 1, 1])}
    arrays |= {"row_splits": np.array([0, 1, 3]), "lengths": np.array([3, 7])}
    np.savez(tmp_path / "words.npz", **arrays)
    assert load_words(str(tmp_path / "words.npz"), 2).words == ["one", "two"]
    np.savez(tmp_path / "words.npz", **arrays | changes)
    with pytest.raises(ValueError, match=r"words\.npz is damaged \(.*\): delete it, so that it is made again"):
        load_words(str(tmp_path / "words.npz"), 2)


def test_rows_of_a_table_are_joined():
    table = RaggedTable(np.array([10, 20, 21, 30, 31, 32]), np.array([0, 1, 3, 3, 6]))
    joined = table.join(np.array([3, 2, 0, 0, 1]), np.array([0, 2, 2, 5]))
    assert joined.values.tolist() == [30, 31, 32, 10, 10, 20, 21] and joined.row_splits.tolist() == [0, 3, 3, 7]


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["empty", "half", "text", "changed", "array", "other"])
def test_a_damaged_file_of_statistics_is_refused(tmp_path, damage):
    path, arrays = tmp_path / "statistics.npz", create_statistics([["the", "end"], ["the", "film"]]).to_arrays()
    np.savez(path, **arrays)
    content = path.read_bytes()
    if damage == "changed":
        np.savez(path, **arrays | {"word_counts": arrays["word_counts"] + 1})
    elif damage == "other":
        np.savez(path, words=np.arange(3))
    elif damage == "array":
        with open(path, "wb") as file:
            np.save(file, np.arange(3))
    else:
        path.write_bytes({"empty": b"", "half": content[: len(content) // 2], "text": b"{}"}[damage])
    with pytest.raises(ValueError, match="is damaged or no file of statistics: delete it"):
        load_statistics(str(path), 2)


def test_statistics_of_another_number_of_texts_are_refused(tmp_path):
    statistics = create_statistics([["the", "end"], ["the", "film"]])
    np.savez(tmp_path / "statistics.npz", **statistics.to_arrays())
    assert load_statistics(tmp_path / "statistics.npz", 2).sha256 == statistics.sha256
    with pytest.raises(ValueError, match="made from num_texts=2, expected the statistics of num_texts=5: delete it"):
        load_statistics(tmp_path / "statistics.npz", 5)


# ---- augmentations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_title", [False, True])
def test_kept_words_give_the_same_records_as_the_texts(data_dir, has_title):
    """Paraphrases, too: of an original that stays, only the words and the length are needed."""
    rng = np.random.default_rng(0)
    titles = [small_data.random_text(rng, -1, 3) if has_title else None for _ in range(12)]
    examples = [
        Example(str(number), small_data.random_text(rng, -1, 3 + number), title, -1)
        for number, title in enumerate(titles)
    ]
    tokenization, positions = create_tokenization(data_dir), range(4, 16)
    encoder = encoding.Encoder(data_dir, tokenization, has_title)
    texts = encoding.texts_of(examples, 1 + has_title)
    save_words(f"{data_dir}/words.npz", split_texts(encoder.tokenizer, texts))
    # Paraphrases stand for all texts of the split, of which these are the fifth to the last.
    paraphrases = [""] * 4 * (1 + has_title) + [text[::-1] if number % 3 else "no" for number, text in enumerate(texts)]
    with open(f"{data_dir}/para_0.txt", "w") as file:
        file.write("".join(f"{line}\n" for line in paraphrases))
    paraphrases = back_translation.open_paraphrases(f"{data_dir}/para_0.txt", len(paraphrases))
    blocks = (
        encoding.Block(encoder, positions, examples),
        encoding.Block(encoder, positions, (), f"{data_dir}/words.npz"),
    )
    encoded = []
    for block in blocks:
        augmented, num_accepted, num_texts = encoding.take_paraphrases(block, 0.9, None, paraphrases)
        encoded.append(list(record_format.encode(block.originals, positions, None, augmented)))
        assert num_texts == len(texts) and 0 < num_accepted < num_texts
    assert encoded[0] == encoded[1]
    chosen = [text[::-1] if number % 3 and len(text) >= 10 else text for number, text in enumerate(texts)]
    words = split_texts(encoder.tokenizer, chosen)
    expected = encoder.encode(
        words.word_ids, words.row_splits, encoding.create_piece_table(encoder.tokenizer, words.words)
    )
    assert [ids.tolist() for ids, _ in augmented] == [ids.tolist() for ids, _ in expected]
