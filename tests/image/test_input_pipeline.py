"""image/input_pipeline.py: whole passes, batches that depend on seed and step alone, independent views."""

import collections
import dataclasses
import itertools
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from image import input_pipeline, record_format
from tests.image.small_data import plain_crop_flip, read_records, run_preprocess, tiny_config, write_cifar10
from tests.shares import assert_shares_are_the_whole
from utils import files, preprocessing, record_stream

NUM_TRAIN, NUM_LABELLED, NUM_COPIES = 50, 20, 2
IN_MEMORY, FROM_FILES = 100_000, 7  # shuffle_buffer: more and fewer than there are records


@pytest.fixture(scope="module")
def small_data(tmp_path_factory):
    """Raw arrays, and the folder of their records in shards of 16."""
    folder = tmp_path_factory.mktemp("data")
    arrays = write_cifar10(folder / "raw", NUM_TRAIN)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(preprocessing, "SHARD_SIZE", 16)
        for settings in ({"sup_aug_ops": "randaugment"}, {"aug_ops": "crop_flip", "dev_size": 5}):
            run_preprocess(folder / "raw", folder / "records", sup_size=NUM_LABELLED, aug_copy=NUM_COPIES, **settings)
    return arrays, folder / "records"


@pytest.fixture
def no_crop(monkeypatch):
    """Every weak augmentation leaves the image as it is, so that it can be recognised."""

    def draw_the_middle(seed, num_images, padding, flip):
        return tf.fill([num_images, 2], padding), tf.fill([num_images], False)

    monkeypatch.setattr(input_pipeline.weak, "draw_crop_flip", draw_the_middle)


def create_batches(config, num_steps, start_step=0, **facts):
    data = input_pipeline.open_data(config)
    data = data._replace(facts=dataclasses.replace(data.facts, **facts))
    dataset = input_pipeline.create_train_dataset(config, data, start_step).take(num_steps)
    return [{key: value.numpy() for key, value in batch.items()} for batch in dataset]


def assert_same_batches(batches, others):
    assert len(batches) == len(others)
    for batch, other in zip(batches, others):
        assert batch.keys() == other.keys()
        for key in batch:
            np.testing.assert_array_equal(batch[key], other[key], err_msg=key)


def identities(*arrays):
    """One hashable value for each row of the arrays."""
    return [tuple(row.tobytes() for row in rows) for rows in zip(*arrays)]


# ---- batches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unsup_ratio, shuffle_buffer", [(1, FROM_FILES), (2, IN_MEMORY), (5, FROM_FILES)])
def test_a_batch_has_four_parts_of_static_shape(small_data, unsup_ratio, shuffle_buffer):
    config = tiny_config(small_data[1], unsup_ratio=unsup_ratio, shuffle_buffer=shuffle_buffer)
    dataset = input_pipeline.create_train_dataset(config, input_pipeline.open_data(config))
    unlabelled = tf.TensorSpec([4 * unsup_ratio, 32, 32, 4], tf.uint8)
    assert dataset.element_spec == {
        "sup": tf.TensorSpec([4, 32, 32, 4], tf.uint8),
        "label": tf.TensorSpec([4], tf.int64),
        "original": unlabelled,
        "augmented": unlabelled,
    }


@pytest.mark.parametrize("shuffle_buffer", [IN_MEMORY, FROM_FILES])
def test_without_unlabelled_examples_a_batch_has_two_parts(small_data, shuffle_buffer):
    config = tiny_config(small_data[1], unsup_ratio=0, shuffle_buffer=shuffle_buffer)
    dataset = input_pipeline.create_train_dataset(config, input_pipeline.open_data(config))
    assert dataset.element_spec == {
        "sup": tf.TensorSpec([4, 32, 32, 4], tf.uint8),
        "label": tf.TensorSpec([4], tf.int64),
    }


def test_training_without_unlabelled_examples_needs_no_copies(small_data, tmp_path):
    data_dir = tmp_path / "records"
    shutil.copytree(small_data[1], data_dir, ignore=shutil.ignore_patterns("unsup"))
    assert len(create_batches(tiny_config(data_dir, unsup_ratio=0), 3)) == 3


def test_the_labelled_part_is_the_same_with_and_without_unlabelled_examples(small_data):
    with_unlabelled = create_batches(tiny_config(small_data[1], unsup_ratio=3), 6)
    without = create_batches(tiny_config(small_data[1], unsup_ratio=0), 6)
    assert_same_batches([{key: batch[key] for key in ("sup", "label")} for batch in with_unlabelled], without)


SHARED = [{}, {"sup_aug_ops": "randaugment"}, {"shuffle_buffer": FROM_FILES}, {"aug_mode": "online"}]


@pytest.mark.parametrize("settings", [*SHARED, {"aug_mode": "online", "aug_ops": "cutout"}], ids=str)
def test_hosts_together_make_the_batches_of_one(small_data, copied_data, settings):
    if settings.get("aug_mode") == "online":  # the originals are there as a set of their own then
        run_preprocess(small_data[1].parent / "raw", copied_data, data_type="unsup", aug_mode="online")
    config = tiny_config(copied_data, **settings)
    data = input_pipeline.open_data(config)
    assert_shares_are_the_whole(lambda share: input_pipeline.create_train_dataset(config, data, 5, share), 2)


def test_hosts_together_evaluate_each_example_once(small_data):
    test = input_pipeline.open_data(tiny_config(small_data[1])).test  # 12: the last share of the last batch is empty
    assert_shares_are_the_whole(lambda share: input_pipeline.create_eval_dataset(test, 32, 8, share), 2)


# ---- parts of the data and of the operations ------------------------------------------------------------------------


@pytest.mark.parametrize("aug_mode", ["offline", "online"])
def test_only_the_chosen_operations_and_images_are_seen(small_data, tmp_path, no_crop, aug_mode):
    part = {"aug_mode": aug_mode, "ops": "Invert,Solarize", "unsup_size": 10}
    config = tiny_config(tmp_path, unsup_ratio=4, **part)
    with pytest.raises(ValueError, match=r"data_dir=.* holds no records"):
        input_pipeline.open_data(config)
    run_preprocess(small_data[1].parent / "raw", tmp_path, sup_size=NUM_LABELLED, aug_copy=2, **part)
    batches = create_batches(config, 5)  # 80 unlabelled examples
    original, augmented = (np.concatenate([batch[key] for batch in batches]) for key in ("original", "augmented"))
    assert len(set(identities(original))) == 10
    visible = augmented[..., 3:] > 0
    original, augmented = original[..., :3], augmented[..., :3]
    assert np.all(~visible | (augmented == original) | (augmented == 255 - original))
    assert np.any(visible & (augmented != original))


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"ops": "Rotate"}, r"randaugment-1_ops-[0-9a-f]{8} has 0 copies\. Write more with"),
        ({"num_ops": 3}, r"randaugment-3_ops-[0-9a-f]{8} has 0 copies\."),
        ({"unsup_size": 10}, r"unsup-size_10/randaugment has 0 copies\."),
        ({"unsup_size": 10, "aug_mode": "online"}, r"unsup-size_10/originals holds no records\. Run"),
    ],
)
def test_records_of_other_operations_or_images_are_not_taken(small_data, settings, message):
    with pytest.raises(ValueError, match=message):
        input_pipeline.open_data(tiny_config(small_data[1], **settings))


def test_a_folder_with_copies_of_other_operations_is_refused(small_data, tmp_path):
    shutil.copytree(small_data[1], tmp_path / "records")
    folder = Path(record_format.copy_dir(tmp_path / "records/unsup", "randaugment", 0, ("Rotate",))).parent
    shutil.copytree(tmp_path / "records/unsup/randaugment", folder)
    with pytest.raises(ValueError, match=r"of other settings \(ops: found None, expected \['Rotate'\]\)"):
        input_pipeline.open_data(tiny_config(tmp_path / "records", ops="Rotate"))


# ---- passes ---------------------------------------------------------------------------------------------------------


def assert_whole_passes(stream, expected, num_passes):
    """Pass after pass has every expected item once, in an order of its own that is not the order on disk."""
    orders = [tuple(stream[start : start + len(expected)]) for start in range(0, len(stream), len(expected))]
    orders = orders[:num_passes]
    for order in orders:
        assert collections.Counter(order) == collections.Counter(expected)
    assert len({tuple(expected), *orders}) == num_passes + 1


@pytest.mark.parametrize(
    "batch_size", [4, 3, 50]
)  # divides both sets; crosses the ends of passes; several passes in one
@pytest.mark.parametrize("shuffle_buffer", [IN_MEMORY, FROM_FILES])
def test_every_record_comes_once_in_a_pass(small_data, no_crop, batch_size, shuffle_buffer):
    config = tiny_config(
        small_data[1], train_batch_size=batch_size, unsup_ratio=5, shuffle_buffer=shuffle_buffer, seed=3
    )
    num_steps = -(-3 * NUM_LABELLED // batch_size)
    batches = create_batches(config, num_steps)
    images, labels = (part[:NUM_LABELLED] for part in small_data[0]["train"])
    stream = [item for batch in batches for item in identities(batch["sup"][..., :3], batch["label"])]
    assert_whole_passes(stream, identities(images, labels), 3)

    folders = [small_data[1] / "unsup/randaugment" / f"copy-{copy:03d}" for copy in range(NUM_COPIES)]
    copies = [read_records(folder, ["original", "augmented"]) for folder in folders]
    pairs = [item for copy in copies for item in identities(copy["original"], copy["augmented"])]
    assert len(set(pairs)) == NUM_TRAIN * NUM_COPIES
    stream = [item for batch in batches for item in identities(batch["original"], batch["augmented"])]
    assert_whole_passes(stream, pairs, num_steps * batch_size * 5 // len(pairs))


def test_what_does_not_fit_in_the_buffer_is_not_held_in_memory(small_data, monkeypatch):
    monkeypatch.setattr(record_stream, "batches_from_memory", None)
    for shuffle_buffer in (FROM_FILES, NUM_LABELLED - 1):
        create_batches(tiny_config(small_data[1], shuffle_buffer=shuffle_buffer), 1)
    with pytest.raises(TypeError, match="not callable"):
        create_batches(tiny_config(small_data[1], shuffle_buffer=NUM_LABELLED), 1)


@pytest.mark.parametrize("aug_mode, at_224", [("offline", 13_975), ("online", 28_532)])
def test_the_buffer_is_as_large_as_4_gib_allow(aug_mode, at_224):
    config = tiny_config("data", aug_mode=aug_mode)
    assert input_pipeline.limit_memory(config, 32) == config.shuffle_buffer == 100_000
    assert input_pipeline.limit_memory(config, 224) == at_224
    assert input_pipeline.limit_memory(dataclasses.replace(config, shuffle_buffer=500), 224) == 500


def test_records_above_the_limit_of_memory_are_streamed_and_a_stream_may_start_at_any_step(small_data, monkeypatch):
    config = tiny_config(small_data[1], seed=5)
    record = next(tf.data.TFRecordDataset(input_pipeline.open_data(config).unsup[0].paths).as_numpy_iterator())
    monkeypatch.setattr(input_pipeline, "MEMORY", FROM_FILES * len(record))
    assert input_pipeline.limit_memory(config, 32) == FROM_FILES
    monkeypatch.setattr(record_stream, "batches_from_memory", None)
    batches = create_batches(config, 9)
    assert_same_batches(create_batches(config, 3, start_step=6), batches[6:])
    monkeypatch.undo()
    assert_same_batches(create_batches(dataclasses.replace(config, shuffle_buffer=FROM_FILES), 9), batches)


def test_fewer_copies_are_read_when_asked_for(small_data, no_crop):
    batches = create_batches(tiny_config(small_data[1], aug_copy=1, train_batch_size=5, unsup_ratio=5), 2)
    first = read_records(small_data[1] / "unsup/randaugment/copy-000", ["augmented"])["augmented"]
    stream = [item for batch in batches for item in identities(batch["augmented"])]
    assert sorted(stream) == sorted(identities(first))


@pytest.mark.parametrize("shuffle_buffer", [IN_MEMORY, FROM_FILES])
def test_augmented_labelled_examples_keep_their_labels(small_data, no_crop, shuffle_buffer):
    config = tiny_config(small_data[1], sup_aug_ops="randaugment", unsup_ratio=0, shuffle_buffer=shuffle_buffer)
    folders = [small_data[1] / f"sup-size_20/randaugment/copy-{copy:03d}" for copy in range(NUM_COPIES)]
    copies = [read_records(folder, ["augmented", "label", "index"]) for folder in folders]
    np.testing.assert_array_equal(copies[0]["label"], small_data[0]["train"][1][copies[0]["index"]])
    expected = [item for copy in copies for item in identities(copy["augmented"], copy["label"])]
    batches = create_batches(config, 2 * len(expected) // 4)
    stream = [item for batch in batches for item in identities(batch["sup"], batch["label"])]
    assert_whole_passes(stream, expected, 2)


# ---- a function of seed and step ------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"unsup_ratio": 0}, {"unsup_ratio": 3, "sup_aug_ops": "randaugment"}])
@pytest.mark.parametrize("shuffle_buffer", [IN_MEMORY, FROM_FILES])
def test_a_stream_may_start_at_any_step(small_data, shuffle_buffer, settings):
    config = tiny_config(small_data[1], shuffle_buffer=shuffle_buffer, seed=5, **settings)
    batches = create_batches(config, 17)
    # At the border of two passes over the labelled examples, and in the middle of later passes over both.
    for start_step in (5, 14):
        assert_same_batches(create_batches(config, 3, start_step), batches[start_step : start_step + 3])


@pytest.mark.parametrize("shuffle_buffer", [IN_MEMORY, FROM_FILES])
def test_another_seed_gives_another_order(small_data, no_crop, shuffle_buffer):
    streams = []
    for seed in (0, 1):
        batches = create_batches(tiny_config(small_data[1], shuffle_buffer=shuffle_buffer, seed=seed), 5)
        streams.append({key: np.concatenate([batch[key] for batch in batches]) for key in ("sup", "original")})
    for key in ("sup", "original"):
        assert not np.array_equal(streams[0][key], streams[1][key])


@pytest.mark.parametrize("shuffle_buffer", [IN_MEMORY, FROM_FILES])
def test_the_largest_seed_works_and_larger_ones_are_refused(small_data, shuffle_buffer):
    assert len(create_batches(tiny_config(small_data[1], seed=2**29, shuffle_buffer=shuffle_buffer), 2)) == 2
    with pytest.raises(ValueError, match=f"seed={2**29 + 1}: expected at most {2**29}"):
        tiny_config(small_data[1], seed=2**29 + 1)


# ---- weak augmentation ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def find_crop(small_data):
    """A function that tells which training image a view shows, at which offset, and whether it is flipped."""
    table = {}
    for number, image in enumerate(small_data[0]["train"][0]):
        for row, column, flip in itertools.product(range(9), range(9), (False, True)):
            table[plain_crop_flip(image, (row, column), flip, 4).tobytes()] = number, (row, column), flip
    return lambda view: table[np.ascontiguousarray(view[..., :3]).tobytes()]


def test_the_views_of_an_image_are_cropped_and_flipped_independently(small_data, find_crop):
    """The copies of this augmentation equal the originals, so both views are weak augmentations of one image."""
    crops = collections.defaultdict(list)
    for batch in create_batches(tiny_config(small_data[1], aug_ops="crop_flip", dev_size=5), 12):
        for key in ("sup", "original", "augmented"):
            crops[key] += map(find_crop, batch[key])
    pairs = list(zip(crops["original"], crops["augmented"]))
    assert len(pairs) == 96 and all(original[0] == augmented[0] for original, augmented in pairs)
    assert sum(original == augmented for original, augmented in pairs) <= 5  # 0.6 are expected
    assert [crop[1:] for crop in crops["sup"]] != [crop[1:] for crop in crops["original"][:48]]
    for key in crops:
        assert {flip for _, _, flip in crops[key]} == {False, True}
        assert len({offset for _, offset, _ in crops[key]}) > 20


def test_no_image_is_flipped_where_flips_change_the_class(small_data, find_crop):
    for batch in create_batches(tiny_config(small_data[1], aug_ops="crop_flip", dev_size=5), 5, flip=False):
        for key in ("sup", "original", "augmented"):
            assert not any(find_crop(view)[2] for view in batch[key])


def test_labelled_images_keep_their_labels_through_crops(small_data, find_crop):
    labels = small_data[0]["train"][1]
    for batch in create_batches(tiny_config(small_data[1]), 10):
        assert [labels[find_crop(view)[0]] for view in batch["sup"]] == batch["label"].tolist()


def test_a_crop_moves_color_and_alpha_together(small_data):
    """Pixels of alpha 0 are cut out in black by the last Cutout, and stay together with their alpha."""
    config = tiny_config(small_data[1])
    copies = [read_records(small_data[1] / f"unsup/randaugment/copy-00{copy}", ["augmented"]) for copy in (0, 1)]
    known = {tuple(pixel) for copy in copies for pixel in copy["augmented"].reshape(-1, 4)}
    for batch in create_batches(config, 3):
        assert {tuple(pixel) for pixel in batch["augmented"].reshape(-1, 4)} <= known
        assert np.all(batch["original"][..., 3] == 255)


# ---- evaluation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 5, 12, 30])
def test_evaluation_sees_each_example_once_and_pads_with_weight_0(small_data, batch_size):
    data = input_pipeline.open_data(tiny_config(small_data[1]))
    dataset = input_pipeline.create_eval_dataset(data.test, 32, batch_size)
    assert dataset.element_spec == {
        "sup": tf.TensorSpec([batch_size, 32, 32, 4], tf.uint8),
        "label": tf.TensorSpec([batch_size], tf.int64),
        "weight": tf.TensorSpec([batch_size], tf.float32),
    }
    batches = list(dataset.as_numpy_iterator())
    assert len(batches) == -(-12 // batch_size)
    whole = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
    np.testing.assert_array_equal(whole["weight"], [1] * 12 + [0] * (len(whole["weight"]) - 12))
    images, labels = small_data[0]["test"]
    np.testing.assert_array_equal(whole["sup"][:12, ..., :3], images)
    np.testing.assert_array_equal(whole["label"][:12], labels)


def test_the_development_split_is_evaluated_in_its_order(small_data):
    data = input_pipeline.open_data(tiny_config(small_data[1], dev_size=5, aug_ops="crop_flip"))
    batch = next(iter(input_pipeline.create_eval_dataset(data.dev, 32, 5)))
    indices = data.dev[0].settings["indices"]
    np.testing.assert_array_equal(batch["sup"][..., :3], small_data[0]["train"][0][indices])
    assert data.sup[0].num_examples == NUM_LABELLED and len(indices) == 5 and min(indices) >= NUM_LABELLED


def test_a_data_set_without_test_images_opens_without_them(small_data, tmp_path):
    data_dir = tmp_path / "records"
    shutil.copytree(small_data[1], data_dir, ignore=shutil.ignore_patterns("test"))
    text = (data_dir / "dataset.json").read_text()
    (data_dir / "dataset.json").write_text(re.sub('"test_size": 10000', '"test_size": 0', text))
    data = input_pipeline.open_data(tiny_config(data_dir))
    assert data.test == [] and data.dev == []


# ---- errors ---------------------------------------------------------------------------------------------------------


def assert_refused(message, data_dir, **settings):
    with pytest.raises(ValueError, match=message):
        input_pipeline.open_data(tiny_config(data_dir, **settings))


def test_more_copies_than_there_are_is_refused(small_data):
    message = r"aug_copy=3, but .*unsup/randaugment has 2 copies\. Write more with `python -m image\.preprocess "
    message += r"--data_type=unsup --aug_ops=randaugment --aug_copy=3` and the same data flags, or train with"
    assert_refused(message, small_data[1], aug_copy=3)


def test_missing_labelled_copies_are_asked_for_by_their_own_flag(small_data):
    message = r"has 0 copies\. Write more with `python -m image\.preprocess "
    message += "--data_type=sup --sup_aug_ops=cutout --aug_copy=2`"
    assert_refused(message, small_data[1], sup_aug_ops="cutout")


def test_no_copies_of_an_augmentation_is_refused(small_data):
    assert_refused(r"aug_copy=2, but .*unsup/cutout has 0 copies", small_data[1], aug_ops="cutout")


def test_an_image_size_must_be_that_of_the_records(small_data):
    assert input_pipeline.open_data(tiny_config(small_data[1], image_size=32)).facts.image_size == 32
    assert_refused(r"image_size=64, but data_dir=.* holds images of 32 pixels: leave", small_data[1], image_size=64)


def test_a_draw_of_another_size_is_refused(small_data, tmp_path):
    """As earlier versions wrote it, which took the development split out of the labelled examples."""
    shutil.copytree(small_data[1] / "sup-size_20", tmp_path / "sup-size_25-dev_5")
    shutil.copy(small_data[1] / "dataset.json", tmp_path)
    message = r"sup-size_25-dev_5/train has 20 examples, expected sup_size=25: delete .*sup-size_25-dev_5 and"
    assert_refused(message, tmp_path, sup_size=25, dev_size=5)


def test_another_data_set_is_refused(small_data):
    assert_refused(r"data_dir=.* holds records of cifar10, not task_name=svhn\.", small_data[1], task_name="svhn")


def test_missing_records_are_named_with_the_command_that_writes_them(small_data, tmp_path):
    assert_refused(r"data_dir=.*/nowhere holds no records: there is no .*dataset\.json", tmp_path / "nowhere")
    message = r"sup-size_30/train holds no records\. Run `python -m image\.preprocess --task_name=cifar10 "
    message += (
        rf"--data_type=sup --data_dir={re.escape(str(small_data[1]))}` with the same data flags as the training\."
    )
    assert_refused(message, small_data[1], sup_size=30)
    assert_refused("sup-size_20-dev_7/train holds no records", small_data[1], dev_size=7)


def test_unfinished_and_damaged_records_are_refused(small_data, tmp_path):
    data_dir = tmp_path / "records"
    shutil.copytree(small_data[1], data_dir)
    info_path = data_dir / "unsup/randaugment/copy-001/info.json"
    info = info_path.read_text()
    info_path.write_text(info.replace('"complete": true', '"complete": false'))
    assert_refused(r"copy-001 is unfinished: its preprocessing was stopped\. Run `python -m image\.pre", data_dir)
    info_path.write_text(info)
    shard = data_dir / "test/records-00000-of-00001.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-100])
    assert_refused(r"records-00000-of-00001\.tfrecord has \d+ bytes, expected \d+: delete .*test\. Run", data_dir)


# ---- online augmentation --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def online_config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("online")
    write_cifar10(folder / "raw", NUM_TRAIN)
    run_preprocess(
        folder / "raw", folder / "records", sup_size=NUM_LABELLED, aug_mode="online", sup_aug_ops="randaugment"
    )
    return tiny_config(folder / "records", aug_mode="online", sup_size=NUM_LABELLED)


def test_online_augmentation_needs_no_copies(online_config):
    folders = {path.parent.name for path in Path(online_config.data_dir).rglob("info.json")}
    assert folders == {"train", "test", "originals"}
    (batch,) = create_batches(online_config, 1)
    assert batch["augmented"].shape == (8, 32, 32, 4) and batch["augmented"].dtype == np.uint8


@pytest.mark.slow
def test_online_augmentation_starts_at_any_step(online_config):
    batches = create_batches(online_config, 5)
    assert_same_batches(batches[3:], create_batches(online_config, 2, start_step=3))


def test_online_augmentation_is_that_of_the_batch_of_originals(online_config, no_crop):
    config = dataclasses.replace(online_config, aug_ops="cutout")
    for batch in create_batches(config, 2):
        covered = batch["augmented"][..., 3] > 0
        assert (~covered).any(axis=(1, 2)).all()  # Cutout hides a part of every image
        np.testing.assert_array_equal(batch["augmented"][covered], batch["original"][covered])


@pytest.mark.slow
def test_online_augmentation_of_labelled_images_keeps_their_labels(online_config, no_crop):
    plain = create_batches(online_config, 2)
    augmented = create_batches(dataclasses.replace(online_config, sup_aug_ops="cutout"), 2)
    for batch, other in zip(plain, augmented):
        covered = other["sup"][..., 3] > 0
        assert (~covered).any(axis=(1, 2)).all() and (batch["sup"][..., 3] == 255).all()
        np.testing.assert_array_equal(other["sup"][covered], batch["sup"][covered])
        np.testing.assert_array_equal(other["label"], batch["label"])


def test_passes_see_other_augmentations_of_the_same_image(online_config, no_crop):
    seen = collections.defaultdict(set)
    for batch in create_batches(online_config, 3 * NUM_TRAIN // 8 + 1):
        for original, augmented in zip(batch["original"], batch["augmented"]):
            seen[original.tobytes()].add(augmented.tobytes())
    assert len(seen) == NUM_TRAIN
    assert all(len(augmentations) >= 2 for augmentations in seen.values())


def test_online_training_without_its_records_says_how_to_write_them(small_data):
    config = tiny_config(small_data[1], aug_mode="online", sup_size=NUM_LABELLED)
    with pytest.raises(ValueError, match="originals holds no records.*--data_type=unsup --aug_mode=online"):
        input_pipeline.open_data(config)


# ---- damage, before the first step ----------------------------------------------------------------------------------


@pytest.fixture
def copied_data(small_data, tmp_path):
    shutil.copytree(small_data[1], tmp_path / "records")
    return tmp_path / "records"


def change_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite_shard(set_dir, change):
    """Writes a shard anew with changed records, valid checksums of each, and an info.json that belongs to it."""
    info = json.loads((set_dir / "info.json").read_text())
    path = set_dir / info["shards"][0]["name"]
    contents = [change(tf.train.Example.FromString(record.numpy())) for record in tf.data.TFRecordDataset(str(path))]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for content in contents:
            writer.write(content.SerializeToString())
    info["shards"][0] |= {"num_bytes": path.stat().st_size, "sha256": files.checksum(path)}
    (set_dir / "info.json").write_text(json.dumps(info))


@pytest.mark.parametrize("changes", [{"mean": [1]}, {"mean": [0.5, 0.5, float("nan")]}, {"std": [0, 0, 0]}])
def test_a_wrong_normalisation_is_refused(copied_data, changes):
    change_json(copied_data / "dataset.json", **changes)
    assert_refused(rf"dataset\.json: {list(changes)[0]}=.*: expected", copied_data)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"image_size": 64}, "image_size: found 32, expected 64"),
        ({"class_names": ["cat", "dog"]}, "num_classes: found 10, expected 2"),
    ],
)
def test_facts_that_do_not_fit_the_records_are_refused(copied_data, changes, message):
    change_json(copied_data / "dataset.json", **changes)
    assert_refused(rf"holds records of other settings \({message}\)", copied_data)


@pytest.mark.parametrize(
    "set_dir", ["test", "sup-size_20/train", "unsup/randaugment/copy-001", "sup-size_20-dev_5/dev"]
)
def test_a_flipped_byte_anywhere_is_noticed(copied_data, set_dir):
    path = sorted((copied_data / set_dir).glob("*.tfrecord"))[-1]
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)
    run = {"dev_size": 5, "aug_ops": "crop_flip"} if "dev" in set_dir else {}
    assert_refused(rf"{path} is damaged or was changed: sha256=", copied_data, **run)


def set_label(label):
    def change(example):
        example.features.feature["label"].int64_list.value[:] = [label]
        return example

    return change


def cut_image(example):
    value = example.features.feature["original"].bytes_list.value
    value[:] = [value[0][:-1]]
    return example


def drop_image(example):
    del example.features.feature["original"]
    return example


@pytest.mark.parametrize("change", [set_label(99), cut_image, drop_image], ids=["label", "cut", "missing"])
@pytest.mark.parametrize("set_dir", ["test", "sup-size_20/train"])
def test_records_that_do_not_fit_are_refused_even_if_all_checksums_are_right(copied_data, set_dir, change):
    rewrite_shard(copied_data / set_dir, change)
    message = r"tfrecord has records that are damaged or do not fit dataset\.json, with image_size=32"
    assert_refused(message, copied_data)


def test_unlabelled_records_that_do_not_fit_are_refused(copied_data):
    rewrite_shard(copied_data / "unsup/randaugment/copy-000", cut_image)
    assert_refused(r"copy-000/.*tfrecord has records that are damaged or do not fit dataset\.json", copied_data)


def test_unlabelled_records_are_checked_again_on_request(copied_data):
    path = next((copied_data / "unsup/randaugment/copy-000").glob("*.tfrecord"))
    input_pipeline.open_data(tiny_config(copied_data))
    before, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a disk does that forgets
    input_pipeline.open_data(tiny_config(copied_data))
    assert_refused(rf"{path} is damaged or was changed", copied_data, verify_records=True)
