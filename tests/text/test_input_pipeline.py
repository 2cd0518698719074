"""text/input_pipeline.py: whole passes, batches that depend on seed and step alone, little padding."""

import dataclasses
import json
import os
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.shares import assert_shares_are_the_whole
from text import input_pipeline, record_format
from text.datasets.source import Facts
from utils import distribution, records

NUM_LABELLED, NUM_UNLABELLED, NUM_TEST, MAX_LENGTH = 10, 150, 23, 64
IN_MEMORY, FROM_FILES = 100_000, 7  # shuffle_buffer: more and fewer than there are records
FACTS = Facts("csv", ("bad", "good"), has_title=True)
TOKENIZATION = record_format.Tokenization("ab" * 32, 30522, True, MAX_LENGTH, True)


def create_text(rng, number):
    """A pair whose second piece tells which one it is."""
    length = int(rng.integers(4, MAX_LENGTH + 1))
    ids = rng.integers(1000, 2000, length).astype(np.int32)
    ids[1] = number
    return ids, int(rng.integers(0, 3))


def write_set(set_dir, num_examples, settings, labelled, augmented_by=0):
    """Writes records in shards of 16; returns the list of (original, augmented) texts."""
    rng = np.random.default_rng(num_examples + augmented_by)
    originals = [create_text(rng, 1 + number) for number in range(num_examples)]
    augmented = (
        [create_text(rng, 1 + number + augmented_by) for number in range(num_examples)] if augmented_by else None
    )
    labels = np.arange(num_examples) % 2 if labelled else None
    serialized = list(record_format.encode(originals, range(num_examples), labels, augmented))
    num_shards = -(-num_examples // 16)
    records.begin_set(set_dir, dataclasses.asdict(TOKENIZATION) | settings)
    for shard in range(num_shards):
        records.write_shard(set_dir, shard, num_shards, lambda: serialized[16 * shard : 16 * (shard + 1)])
    records.finish_set(set_dir, num_shards)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    (folder / "original_vocab.txt").write_text("[PAD]\n")
    record_format.write_dataset(str(folder), FACTS, TOKENIZATION, str(folder / "original_vocab.txt"))
    for name in ("sup-size_10/train", "sup-size_10-dev_4/train"):
        write_set(str(folder / name), NUM_LABELLED, {}, True)
    write_set(str(folder / "sup-size_10-dev_4/dev"), 4, {}, True)
    write_set(str(folder / "test"), NUM_TEST, {}, True)
    for copy in range(2):
        for aug_op, offset in (("tf_idf-0.7", 1000), ("bt-0.9", 3000)):
            set_dir = record_format.copy_dir(str(folder), aug_op, copy)
            write_set(set_dir, NUM_UNLABELLED, {"aug_op": aug_op}, False, offset + 1000 * copy)
    return str(folder)


def create_config(data_dir, **settings):
    defaults = {"task_name": "csv", "sup_size": NUM_LABELLED, "label_seed": -1, "dev_size": 0, "sup_ids_file": ""}
    defaults |= {"aug_ops": "tf_idf-0.7", "aug_copy": 1, "max_seq_length": MAX_LENGTH, "train_batch_size": 2}
    defaults |= {"unsup_ratio": 2, "shuffle_buffer": IN_MEMORY, "seed": 0, "verify_records": False}
    return types.SimpleNamespace(data_dir=data_dir, **defaults | settings)


def create_batches(config, num_steps, start_step=0, fixed_length=False):
    data = input_pipeline.open_data(config)
    dataset = input_pipeline.create_train_dataset(config, data, start_step, fixed_length).take(num_steps)
    return [tf.nest.map_structure(lambda value: value.numpy(), batch) for batch in dataset]


def numbers_of(features):
    return features["ids"][:, 1].tolist()


def lengths_of(features):
    return np.count_nonzero(features["ids"], axis=1)


def assert_same_batches(batches, others):
    assert len(batches) == len(others)
    for batch, other in zip(batches, others):
        tf.nest.map_structure(np.testing.assert_array_equal, batch, other)


# ---- batches --------------------------------------------------------------------------------------------------------


def features_spec(batch_size, length):
    return {key: tf.TensorSpec([batch_size, length], tf.int32) for key in ("ids", "type_ids")}


@pytest.mark.parametrize("fixed_length, length", [(False, None), (True, MAX_LENGTH)])
@pytest.mark.parametrize("shuffle_buffer", [IN_MEMORY, FROM_FILES])
def test_a_batch_has_four_parts(data_dir, shuffle_buffer, fixed_length, length):
    config = create_config(data_dir, shuffle_buffer=shuffle_buffer)
    data = input_pipeline.open_data(config)
    dataset = input_pipeline.create_train_dataset(config, data, fixed_length=fixed_length)
    assert dataset.element_spec == {
        "sup": features_spec(2, length),
        "label": tf.TensorSpec([2], tf.int64),
        "original": features_spec(4, length),
        "augmented": features_spec(4, length),
    }


def test_without_unlabelled_examples_a_batch_has_two_parts_and_no_copies_are_needed(data_dir):
    config = create_config(data_dir, unsup_ratio=0, aug_ops="unif-0.1")
    assert [set(batch) for batch in create_batches(config, 2)] == [{"sup", "label"}] * 2


def test_texts_labels_and_segments_are_those_of_the_records(data_dir):
    paths = tf.io.gfile.glob(f"{data_dir}/unsup/tf_idf-0.7/copy-000/*.tfrecord")
    parsed = record_format.parse(list(tf.data.TFRecordDataset(paths)), record_format.VIEWS)
    stored = {view: record_format.pad(parsed[view], MAX_LENGTH) for view in parsed}
    rows = {number: row for row, number in enumerate(stored["original"]["ids"][:, 1].numpy())}
    for batch in create_batches(create_config(data_dir), 20):
        assert [(number - 1) % 2 for number in numbers_of(batch["sup"])] == batch["label"].tolist()
        for view in record_format.VIEWS:
            for key in ("ids", "type_ids"):
                length = batch[view][key].shape[1]
                expected = tf.gather(stored[view][key], [rows[n] for n in numbers_of(batch["original"])])
                np.testing.assert_array_equal(batch[view][key], expected[:, :length])
                assert not np.any(expected[:, length:])


def test_both_views_of_an_example_are_in_the_same_row(data_dir):
    for batch in create_batches(create_config(data_dir), 20):
        assert [n + 1000 for n in numbers_of(batch["original"])] == numbers_of(batch["augmented"])


# ---- lengths --------------------------------------------------------------------------------------------------------


def test_a_batch_is_as_long_as_its_longest_text_rounded_up(data_dir):
    lengths = set()
    for batch in create_batches(create_config(data_dir), 40):
        longest = max(max(lengths_of(batch[view])) for view in record_format.VIEWS)
        assert batch["original"]["ids"].shape == batch["augmented"]["ids"].shape == (4, -(-longest // 16) * 16)
        assert batch["sup"]["ids"].shape == (2, -(-max(lengths_of(batch["sup"])) // 16) * 16)
        lengths.add(batch["original"]["ids"].shape[1])
    assert lengths <= {16, 32, 48, 64} and len(lengths) >= 3


def test_no_batch_is_longer_than_max_seq_length(data_dir, monkeypatch):
    monkeypatch.setattr(input_pipeline, "LENGTH_STEP", 60)
    shapes = {batch["original"]["ids"].shape[1] for batch in create_batches(create_config(data_dir), 40)}
    assert shapes == {60, 64}


def test_texts_of_similar_length_come_together(data_dir):
    """The spread of lengths within a batch is much smaller than in batches of random texts."""
    spreads = []
    for window in (input_pipeline.MAX_WINDOW, 1):
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(input_pipeline, "MAX_WINDOW", window)
            longer = [
                np.maximum(*(lengths_of(batch[view]) for view in record_format.VIEWS))
                for batch in create_batches(create_config(data_dir), 64)
            ]
        spreads.append(np.mean(np.ptp(longer, axis=1)))
    assert spreads[0] < 0.6 * spreads[1]


def test_lengths_do_not_rise_within_a_window(data_dir):
    lengths = [batch["original"]["ids"].shape[1] for batch in create_batches(create_config(data_dir), 32)]
    windows = [lengths[start : start + 4] for start in range(0, 32, 4)]
    assert sum(window == sorted(window) for window in windows) <= 4


def test_fixed_length_gives_the_same_texts_with_more_padding(data_dir):
    config = create_config(data_dir)
    for batch, fixed in zip(create_batches(config, 10), create_batches(config, 10, fixed_length=True), strict=True):
        np.testing.assert_array_equal(batch["label"], fixed["label"])
        for view in ("sup", "original", "augmented"):
            for key in ("ids", "type_ids"):
                length = batch[view][key].shape[1]
                np.testing.assert_array_equal(batch[view][key], fixed[view][key][:, :length])
                assert fixed[view][key].shape[1] == MAX_LENGTH and not np.any(fixed[view][key][:, length:])


def test_the_same_labelled_text_does_not_fill_a_batch(data_dir):
    """Ten texts give no windows: a pass in batches of five has each of them once."""
    for batch in create_batches(create_config(data_dir, train_batch_size=5, unsup_ratio=0), 20):
        assert len(set(numbers_of(batch["sup"]))) == 5


# ---- passes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle_buffer", [IN_MEMORY, FROM_FILES])
@pytest.mark.parametrize(
    "aug_ops, unsup_ratio, offsets",
    [("tf_idf-0.7", 5, [1000, 2000]), ("tf_idf-0.7+bt-0.9", 10, [1000, 2000, 3000, 4000])],
)
def test_every_record_comes_once_in_a_pass(data_dir, shuffle_buffer, aug_ops, unsup_ratio, offsets):
    """With 30 steps in a pass and three in a window, a pass ends where a window does."""
    config = create_config(
        data_dir, aug_ops=aug_ops, aug_copy=2, shuffle_buffer=shuffle_buffer, unsup_ratio=unsup_ratio
    )
    batches, orders = create_batches(config, 60), []
    for batches_of_pass in (batches[:30], batches[30:]):
        orders.append(
            [
                (original, augmented - original)
                for batch in batches_of_pass
                for original, augmented in zip(numbers_of(batch["original"]), numbers_of(batch["augmented"]))
            ]
        )
        expected = [(number, offset) for number in range(1, NUM_UNLABELLED + 1) for offset in offsets]
        assert sorted(orders[-1]) == expected
    assert orders[0] != orders[1]
    labelled = [number for batch in batches[:10] for number in numbers_of(batch["sup"])]
    assert sorted(labelled[:10]) == sorted(labelled[10:]) == list(range(1, NUM_LABELLED + 1))
    assert labelled[:10] != labelled[10:]


@pytest.mark.parametrize("shuffle_buffer", [IN_MEMORY, FROM_FILES])
def test_few_labelled_examples_are_well_mixed(data_dir, shuffle_buffer):
    """The first half of the records, which may be of one class, is as often in one half of a pass as in the other."""
    config = create_config(data_dir, shuffle_buffer=shuffle_buffer, train_batch_size=5, unsup_ratio=0)
    halves = [numbers_of(batch["sup"]) for batch in create_batches(config, 100)]
    from_first_half = np.sum(np.array(halves) <= 5, axis=1)
    assert 2 < np.mean(from_first_half[::2]) < 3
    assert np.mean(np.abs(from_first_half - 2.5)) < 1


# ---- a function of seed and step ------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"unsup_ratio": 0}, {"aug_ops": "tf_idf-0.7+bt-0.9", "aug_copy": 2}])
@pytest.mark.parametrize("shuffle_buffer", [IN_MEMORY, FROM_FILES])
def test_a_stream_may_start_at_any_step(data_dir, shuffle_buffer, settings):
    config = create_config(data_dir, shuffle_buffer=shuffle_buffer, seed=5, **settings)
    batches = create_batches(config, 45)
    for start_step in (4, 5, 16, 42):  # at and within the borders of windows and passes
        assert_same_batches(create_batches(config, 3, start_step), batches[start_step : start_step + 3])


@pytest.mark.parametrize("shuffle_buffer", [IN_MEMORY, FROM_FILES])
def test_another_seed_gives_another_order(data_dir, shuffle_buffer):
    streams = []
    for seed in (0, 1, 2**29):
        batches = create_batches(create_config(data_dir, shuffle_buffer=shuffle_buffer, seed=seed), 5)
        streams.append([[numbers_of(batch[key]) for batch in batches] for key in ("sup", "original")])
    for sup, other_sup in zip(*zip(streams[0], streams[1])):
        assert sup != other_sup
    assert streams[2] not in streams[:2]


def test_replicas_get_parts_of_the_same_length(data_dir):
    strategy, config = distribution.create_strategy("mirrored"), create_config(data_dir)
    data = input_pipeline.open_data(config)
    distributed = iter(distribution.distribute(strategy, lambda _: input_pipeline.create_train_dataset(config, data)))
    for batch in create_batches(config, 6):
        parts = tf.nest.map_structure(strategy.experimental_local_results, next(distributed))
        for key in ("sup", "original", "augmented"):
            np.testing.assert_array_equal(np.concatenate(parts[key]["ids"]), batch[key]["ids"])
            assert parts[key]["ids"][0].shape == parts[key]["ids"][1].shape
        np.testing.assert_array_equal(np.concatenate(parts["label"]), batch["label"])


@pytest.mark.parametrize("shuffle_buffer", [IN_MEMORY, FROM_FILES])
def test_hosts_together_make_the_batches_of_one(data_dir, shuffle_buffer):
    config = create_config(data_dir, shuffle_buffer=shuffle_buffer, train_batch_size=4)
    data = input_pipeline.open_data(config)
    assert_shares_are_the_whole(lambda share: input_pipeline.create_train_dataset(config, data, 3, share=share), 4)


def test_hosts_together_evaluate_each_example_once(data_dir):
    test = input_pipeline.open_data(create_config(data_dir)).test

    def create_dataset(share):
        return input_pipeline.create_eval_dataset(test, MAX_LENGTH, 4, share=share)

    assert_shares_are_the_whole(create_dataset, -(-NUM_TEST // 4))


# ---- evaluation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixed_length", [False, True])
@pytest.mark.parametrize("batch_size", [1, 5, 23, 30])
def test_evaluation_sees_each_example_once_and_pads_with_weight_0(data_dir, batch_size, fixed_length):
    data = input_pipeline.open_data(create_config(data_dir))
    dataset = input_pipeline.create_eval_dataset(data.test, MAX_LENGTH, batch_size, fixed_length)
    assert dataset.element_spec == {
        "sup": features_spec(batch_size, MAX_LENGTH if fixed_length else None),
        "label": tf.TensorSpec([batch_size], tf.int64),
        "weight": tf.TensorSpec([batch_size], tf.float32),
        "row": tf.TensorSpec([batch_size], tf.int64),
    }
    batches = list(dataset.as_numpy_iterator())
    assert len(batches) == -(-NUM_TEST // batch_size)
    examples = [
        (number, label, weight)
        for batch in batches
        for number, label, weight in zip(numbers_of(batch["sup"]), batch["label"], batch["weight"])
    ]
    padding = examples[NUM_TEST:]
    assert sorted(examples[:NUM_TEST]) == [(number, (number - 1) % 2, 1) for number in range(1, NUM_TEST + 1)]
    assert set(padding) <= {(0, 0, 0)} and len(padding) == len(batches) * batch_size - NUM_TEST
    if batch_size == 5 and not fixed_length:
        lengths = [batch["sup"]["ids"].shape[1] for batch in batches]
        assert lengths == sorted(lengths) and lengths[0] < lengths[-1]


def test_the_development_split_is_separate(data_dir):
    data = input_pipeline.open_data(create_config(data_dir, dev_size=4))
    assert data.sup[0].num_examples == NUM_LABELLED and data.dev[0].num_examples == 4
    assert input_pipeline.open_data(create_config(data_dir)).dev == []


# ---- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"task_name": "imdb"}, "holds records of csv, not task_name=imdb"),
        (
            {"max_seq_length": 128},
            r"tokenised otherwise \(max_seq_length: found 64, expected 128\)\. Train with --max_seq_length=64, or",
        ),
        ({"sup_size": 12}, r"sup-size_12/train holds no records\. Run `python -m text\.preprocess --task_name=csv"),
        ({"dev_size": 7}, "sup-size_10-dev_7/train holds no records"),
        (
            {"aug_copy": 3},
            r"aug_copy=3, but .*unsup/tf_idf-0\.7 has 2 copies\. Write more with `python -m text\.preprocess "
            r"--data_type=unsup --aug_ops=tf_idf-0\.7 --aug_copy=3` and the same data flags, or train with a smaller "
            r"--aug_copy\.",
        ),
        ({"aug_ops": "tf_idf-0.7+unif-0.1"}, r"aug_copy=1, but .*unsup/unif-0\.1 has 0 copies"),
        ({"aug_ops": "tf_idf"}, "augmentation 'tf_idf'"),
        ({"sup_ids_file": "missing.txt"}, r"sup_ids_file=missing\.txt does not exist"),
    ],
)
def test_what_is_missing_or_contradicts_is_refused_before_the_first_step(data_dir, settings, message):
    with pytest.raises(ValueError, match=message):
        input_pipeline.open_data(create_config(data_dir, **settings))


def test_unfinished_records_are_refused(data_dir, tmp_path):
    set_dir = record_format.copy_dir(data_dir, "unif-0.9", 0)
    records.begin_set(set_dir, dataclasses.asdict(TOKENIZATION) | {"aug_op": "unif-0.9"})
    with pytest.raises(
        ValueError, match=r"copy-000 is unfinished: its preprocessing was stopped\. Run `python -m text"
    ):
        input_pipeline.open_data(create_config(data_dir, aug_ops="unif-0.9"))
    tf.io.gfile.rmtree(os.path.dirname(set_dir))


def test_copies_of_different_texts_are_refused(data_dir, tmp_path):
    shutil.copytree(data_dir, tmp_path / "data")
    config = create_config(str(tmp_path / "data"), aug_ops="unif-0.1+unif-0.2+unif-0.3")
    for aug_op, checksum in (("unif-0.1", "a"), ("unif-0.2", "a"), ("unif-0.3", "b")):
        settings = {"aug_op": aug_op, "texts_sha256": checksum}
        write_set(record_format.copy_dir(config.data_dir, aug_op, 0), 8, settings, False, augmented_by=1)
    message = r"unif-0.3/copy-000 \(8 texts\) and .*unif-0.1/copy-000 \(8\) were made of different unlabelled texts"
    with pytest.raises(ValueError, match=message):
        input_pipeline.open_data(config)
    config.aug_ops = "unif-0.1+unif-0.2"
    assert len(input_pipeline.open_data(config).unsup) == 2


def test_records_that_contradict_the_description_beside_them_are_refused(data_dir, tmp_path):
    folder = shutil.copytree(data_dir, tmp_path / "records")
    description = json.loads((folder / "dataset.json").read_text())
    description["tokenization"]["max_seq_length"] = 32
    (folder / "dataset.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match=r"holds records of other settings \(max_seq_length: found 64, expected 32\)"):
        input_pipeline.open_data(create_config(str(folder), max_seq_length=32))


BAD_RECORDS = {
    "label 2 of 2 classes": {"labels": [2]},
    "a piece beyond the vocabulary": {"originals": [(np.array([101, 30522, 102], np.int32), 0)]},
    "a negative piece": {"originals": [(np.array([101, -1, 102], np.int32), 0)]},
    "too many pieces": {"originals": [(np.full(MAX_LENGTH + 1, 101, np.int32), 0)]},
    "no pieces": {"originals": [(np.zeros(0, np.int32), 0)]},
    "a second text longer than both": {"originals": [(np.array([101, 7, 102], np.int32), 4)]},
    "no label": {"labels": None},
}


@pytest.mark.parametrize("kind", BAD_RECORDS)
def test_labelled_records_that_cannot_be_used_are_refused_before_the_first_step(data_dir, tmp_path, kind):
    folder = shutil.copytree(data_dir, tmp_path / "records")
    content = {"originals": [(np.array([101, 7, 102], np.int32), 0)], "labels": [1]} | BAD_RECORDS[kind]
    shutil.rmtree(folder / "test")
    records.begin_set(str(folder / "test"), dataclasses.asdict(TOKENIZATION))
    examples = record_format.encode(content["originals"], [0], content["labels"])
    records.write_shard(str(folder / "test"), 0, 1, lambda: examples)
    records.finish_set(str(folder / "test"), 1)
    with pytest.raises(ValueError, match=r"test/records-00000-of-00001.tfrecord has records that are damaged or do"):
        input_pipeline.open_data(create_config(str(folder)))
