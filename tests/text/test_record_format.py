"""text/record_format.py: a record gives back the word pieces, segments and label that went in."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.text import small_data
from text import record_format
from text.config import DataConfig
from text.datasets import imdb, tables
from text.tokenization import Tokenizer

TOKENIZATION = record_format.Tokenization("ab" * 32, 30522, True, 128, True)
DATASETS = {"imdb": imdb.FACTS} | tables.OFFICIAL
SINGLE = (np.array([101, 7, 300_000, 102], np.int32), 0)
PAIR = (np.array([101, 7, 102, 8, 9, 102], np.int32), 3)


@pytest.fixture
def vocab_path(tmp_path):
    path = tmp_path / "original_vocab.txt"
    path.write_text("[PAD]\nthe\n")
    return str(path)


# ---- records --------------------------------------------------------------------------------------------------------


def test_pieces_segments_and_numbers_come_back():
    serialized = list(record_format.encode([SINGLE, PAIR], [40, 41], [1, 0], [PAIR, SINGLE]))
    parsed = record_format.parse(tf.constant(serialized), ["original", "augmented", "label", "index"])
    np.testing.assert_array_equal(parsed["label"], [1, 0])
    np.testing.assert_array_equal(parsed["index"], [40, 41])
    np.testing.assert_array_equal(record_format.num_pieces(parsed["original"]), [4, 6])
    single = [101, 7, 300_000, 102, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]
    pair = [101, 7, 102, 8, 9, 102, 0], [0, 0, 0, 1, 1, 1, 0]
    for view, rows in (("original", [single, pair]), ("augmented", [pair, single])):
        padded = record_format.pad(parsed[view], 7)
        np.testing.assert_array_equal(padded["ids"], [ids for ids, _ in rows])
        np.testing.assert_array_equal(padded["type_ids"], [type_ids for _, type_ids in rows])
        assert padded["ids"].dtype == padded["type_ids"].dtype == tf.int32


def test_only_the_wanted_keys_are_parsed():
    serialized = tf.constant(list(record_format.encode([SINGLE], [0])))
    assert set(record_format.parse(serialized, ["original"])) == {"original"}
    assert set(record_format.parse(serialized, ["original", "index"])) == {"original", "index"}


def test_the_length_may_be_static_or_not():
    records = tf.data.Dataset.from_tensor_slices(list(record_format.encode([SINGLE, PAIR], [0, 1])))

    def pad(serialized, length):
        return record_format.pad(record_format.parse(serialized, ["original"])["original"], length)

    batches = records.batch(2, drop_remainder=True)
    static = batches.map(lambda serialized: pad(serialized, 9))
    assert {spec.shape for spec in static.element_spec.values()} == {tf.TensorShape([2, 9])}
    dynamic = batches.map(lambda serialized: pad(serialized, tf.reduce_max(tf.strings.length(serialized)) % 2 + 8))
    assert {tuple(spec.shape) for spec in dynamic.element_spec.values()} == {(2, None)}
    assert {value.shape for value in next(iter(dynamic)).values()} <= {tf.TensorShape([2, 8]), tf.TensorShape([2, 9])}


def test_a_text_of_128_pieces_takes_at_most_600_bytes():
    (record,) = record_format.encode([(np.full(128, 30_000, np.int32), 0)], [2**31], [9])
    assert len(record) <= 600


# ---- folders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw, name",
    [
        ((20, -1, 0), "sup-size_20"),
        ((20, 0, 0), "sup-size_20-seed_0"),
        ((250, 12, 50), "sup-size_250-seed_12-dev_50"),
    ],
)
def test_the_folder_of_a_draw_tells_how_it_was_drawn(draw, name):
    sup_size, label_seed, dev_size = draw
    config = DataConfig(data_dir="data", sup_size=sup_size, label_seed=label_seed, dev_size=dev_size)
    assert record_format.sup_dir(config) == f"data/{name}"


def test_draws_by_different_lists_of_ids_have_different_folders(tmp_path):
    names = []
    for number, ids in enumerate(["1_1\n2_2\n", "1_1\r\n2_2", "1_1\n3_3\n"]):
        path = tmp_path / f"ids_{number}.txt"
        path.write_text(ids)
        names.append(record_format.sup_dir(DataConfig(data_dir="data", sup_size=2, sup_ids_file=str(path))))
    assert names[0].startswith("data/sup-size_2-ids_") and len(names[0]) == len("data/sup-size_2-ids_") + 8
    assert names[0] == names[1] != names[2]
    with pytest.raises(ValueError, match=r"sup_ids_file=missing\.txt does not exist: give the file with the ids"):
        record_format.sup_dir(DataConfig(sup_ids_file="missing.txt"))


def test_the_folder_of_a_copy():
    assert record_format.copy_dir("data", "tf_idf-0.7", 7) == "data/unsup/tf_idf-0.7/copy-007"


# ---- dataset.json ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_name", ["imdb", "dbpedia"])
def test_what_training_needs_comes_back(task_name, tmp_path, vocab_path):
    data_dir, facts = str(tmp_path / "new" / "folder"), DATASETS[task_name]
    record_format.write_dataset(data_dir, facts, TOKENIZATION, vocab_path)
    record_format.write_dataset(data_dir, facts, TOKENIZATION, vocab_path)
    found, tokenization = record_format.read_dataset(data_dir)
    assert (found.name, found.class_names, found.has_title) == (facts.name, facts.class_names, facts.has_title)
    assert tokenization == TOKENIZATION
    with open(record_format.vocab_path(data_dir)) as file:
        assert file.read() == "[PAD]\nthe\n"
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {"dataset.json", "vocab.txt"}


@pytest.mark.parametrize(
    "change",
    [
        {"vocab_sha256": "cd" * 32},
        {"lower_case": False},
        {"max_seq_length": 256},
        {"keep_tail": False},
        {"prefix": "query: "},
    ],
)
def test_records_of_another_tokenisation_are_refused(tmp_path, vocab_path, change):
    record_format.write_dataset(str(tmp_path), DATASETS["imdb"], TOKENIZATION, vocab_path)
    ((name, value),) = change.items()
    message = (
        rf"{tmp_path} holds texts tokenised otherwise \({name}: found .*, expected {value!r}\)\. Choose another --data"
    )
    with pytest.raises(ValueError, match=message):
        other = dataclasses.replace(TOKENIZATION, **change)
        record_format.write_dataset(str(tmp_path), DATASETS["imdb"], other, vocab_path)


def test_records_made_before_there_were_prefixes_are_records_without_one(tmp_path, vocab_path):
    record_format.write_dataset(str(tmp_path), DATASETS["imdb"], TOKENIZATION, vocab_path)
    stored = json.loads((tmp_path / "dataset.json").read_text())["tokenization"]
    names = ["vocab_sha256", "vocab_size", "lower_case", "max_seq_length", "keep_tail"]
    assert list(stored) == list(TOKENIZATION.as_dict()) == names
    assert record_format.read_dataset(str(tmp_path))[1].prefix == ""


def test_a_prefix_comes_back(tmp_path, vocab_path):
    tokenization = dataclasses.replace(TOKENIZATION, prefix="query: ")
    record_format.write_dataset(str(tmp_path), DATASETS["imdb"], tokenization, vocab_path)
    assert record_format.read_dataset(str(tmp_path))[1] == tokenization
    assert tokenization.as_dict() == TOKENIZATION.as_dict() | {"prefix": "query: "}


def test_records_of_another_data_set_are_refused(tmp_path, vocab_path):
    record_format.write_dataset(str(tmp_path), DATASETS["yelp-2"], TOKENIZATION, vocab_path)
    same_classes = dataclasses.replace(DATASETS["yelp-2"], class_names=("positive", "negative"))
    for facts in (DATASETS["amazon-2"], same_classes):
        with pytest.raises(ValueError, match=r"holds records of another data set \(.*dataset\.json\): choose another"):
            record_format.write_dataset(str(tmp_path), facts, TOKENIZATION, vocab_path)


def test_a_folder_without_records_of_texts_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"data_dir=.* holds no records: there is no .*dataset\.json\. Run `python -m"):
        record_format.read_dataset(str(tmp_path))
    (tmp_path / "dataset.json").write_text(json.dumps({"name": "cifar10", "image_size": 32}))
    with pytest.raises(ValueError, match=r"dataset\.json does not describe records of texts: choose another folder"):
        record_format.read_dataset(str(tmp_path))


def test_a_data_dir_that_cannot_be_written_is_named(tmp_path, vocab_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ValueError, match=r"file/data cannot be written \(.*\): make room there or choose another --data_dir"
    ):
        record_format.write_dataset(str(tmp_path / "file" / "data"), DATASETS["imdb"], TOKENIZATION, vocab_path)


FACTS_VALUES = {"name": "csv", "class_names": ["a", "b"], "has_title": False}
BAD_DESCRIPTIONS = {
    "a list": lambda good: [],
    "nothing": lambda good: {},
    "a number for a part": lambda good: good | {"facts": 3},
    "no classes": lambda good: good | {"facts": {"name": "csv", "has_title": False}},
    "one class": lambda good: good | {"facts": FACTS_VALUES | {"class_names": ["a"]}},
    "a class twice": lambda good: good | {"facts": FACTS_VALUES | {"class_names": ["a", "b", "a"]}},
    "a class that is a list": lambda good: good | {"facts": FACTS_VALUES | {"class_names": ["a", ["b"]]}},
    "an unknown fact": lambda good: good | {"facts": FACTS_VALUES | {"colour": "red"}},
    "a length that is a text": lambda good: good | {"tokenization": good["tokenization"] | {"max_seq_length": "128"}},
    "a length beyond reason": lambda good: good | {"tokenization": good["tokenization"] | {"max_seq_length": 2**63}},
    "a yes that is a number": lambda good: good | {"tokenization": good["tokenization"] | {"lower_case": 1}},
}


@pytest.mark.parametrize("kind", BAD_DESCRIPTIONS)
def test_a_description_of_the_wrong_shape_is_refused(tmp_path, kind):
    good = {"facts": FACTS_VALUES, "tokenization": dataclasses.asdict(TOKENIZATION)}
    (tmp_path / "dataset.json").write_text(json.dumps(good))
    assert record_format.read_dataset(str(tmp_path))[0].class_names == ("a", "b")
    (tmp_path / "dataset.json").write_text(json.dumps(BAD_DESCRIPTIONS[kind](good)))
    with pytest.raises(ValueError, match="dataset.json"):
        record_format.read_dataset(str(tmp_path))


def test_another_vocabulary_than_that_of_the_records_is_refused(tmp_path):
    pieces = small_data.write_vocab(tmp_path / "vocab.txt")
    tokenization = dataclasses.replace(TOKENIZATION, vocab_sha256=Tokenizer(str(tmp_path / "vocab.txt")).sha256)
    assert record_format.load_tokenizer(str(tmp_path), tokenization).vocab == pieces
    small_data.write_vocab(tmp_path / "vocab.txt", reversed(small_data.WORDS))
    with pytest.raises(ValueError, match="vocab.txt is not the vocabulary that the records beside it were made with"):
        record_format.load_tokenizer(str(tmp_path), tokenization)
