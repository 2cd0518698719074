"""image/record_format.py: a record gives back the pixels, the alpha plane and the label that went in."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from augmentation.randaugment import randaugment
from image import record_format
from image.config import DataConfig
from image.datasets import cifar10, digits, svhn
from image.models.layers import Normalize


def random_images(count, size, channels, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, size, size, channels), np.uint8)


def opaque(images):
    return np.concatenate([images, np.full_like(images[..., :1], 255)], axis=-1)


@pytest.mark.parametrize("size", [5, 8, 32])  # 25 bits of alpha do not fill whole bytes
def test_images_alpha_and_numbers_come_back(size):
    originals, augmented = random_images(7, size, 3), random_images(7, size, 4, seed=1)
    augmented[..., 3] = np.where(augmented[..., 3] > 100, 255, 0)
    serialized = list(record_format.encode(originals, np.arange(40, 47), np.arange(7), augmented))
    parsed = record_format.parse(tf.constant(serialized), size, ["original", "augmented", "label", "index"])
    np.testing.assert_array_equal(parsed["original"], opaque(originals))
    np.testing.assert_array_equal(parsed["augmented"], augmented)
    np.testing.assert_array_equal(parsed["label"], range(7))
    np.testing.assert_array_equal(parsed["index"], range(40, 47))
    assert {key: value.dtype for key, value in parsed.items()} == {
        "original": tf.uint8,
        "augmented": tf.uint8,
        "label": tf.int64,
        "index": tf.int64,
    }


def test_only_the_wanted_keys_are_parsed():
    serialized = tf.constant(list(record_format.encode(random_images(1, 8, 3), np.array([0]), np.array([3]))))
    assert set(record_format.parse(serialized, 8, ["label"])) == {"label"}
    assert set(record_format.parse(serialized, 8, ["original", "label"])) == {"original", "label"}


def test_shapes_are_static_in_a_pipeline():
    records = tf.data.Dataset.from_tensor_slices(list(record_format.encode(random_images(4, 8, 3), np.arange(4))))
    parsed = records.batch(2, drop_remainder=True).map(lambda batch: record_format.parse(batch, 8, ["original"]))
    assert parsed.element_spec["original"].shape == [2, 8, 8, 4]
    parsed = records.batch(2).map(lambda batch: record_format.parse(batch, 8, ["original"]))
    assert parsed.element_spec["original"].shape == [None, 8, 8, 4]


def test_a_pair_at_32_pixels_takes_at_most_6500_bytes():
    augmented = randaugment(random_images(1, 32, 3), np.random.default_rng(0))
    (record,) = record_format.encode(random_images(1, 32, 3), np.array([2**31]), np.array([9]), augmented)
    assert len(record) <= 6500


def test_stored_then_normalised_equals_the_augmentation_normalised_directly():
    originals = random_images(300, 32, 3)
    augmented = randaugment(originals, np.random.default_rng(5))
    serialized = tf.constant(list(record_format.encode(originals, np.arange(300), None, augmented)))
    parsed = record_format.parse(serialized, 32, ["original", "augmented"])
    facts = cifar10.FACTS
    normalize = Normalize(facts.mean, facts.std)
    mean, std = np.float32(facts.mean), np.float32(facts.std)

    def normalised_directly(rgba):
        normal = (rgba[..., :3].astype(np.float32) / np.float32(255) - mean) / std
        return np.where(rgba[..., 3:] > 0, normal, np.float32(0))

    assert (augmented[..., 3] == 0).any()
    for key, direct in (("original", opaque(originals)), ("augmented", augmented)):
        stored = normalize(parsed[key]).numpy()
        assert stored.dtype == np.float32
        np.testing.assert_array_equal(stored, normalize(tf.constant(direct)))
        np.testing.assert_array_equal(stored, normalised_directly(direct))


@pytest.mark.parametrize(
    "draw, name",
    [
        ((4000, False, -1, 0), "sup-size_4000"),
        ((250, True, -1, 0), "sup-size_250-equal"),
        ((250, False, 0, 0), "sup-size_250-seed_0"),
        ((250, True, 12, 50), "sup-size_250-equal-seed_12-dev_50"),
    ],
)
def test_the_folder_of_a_draw_tells_how_it_was_drawn(draw, name):
    names = "sup_size", "use_equal_split", "label_seed", "dev_size"
    assert record_format.sup_dir(DataConfig(data_dir="data", **dict(zip(names, draw)))) == f"data/{name}"


def test_the_folder_of_a_copy():
    assert record_format.copy_dir("data/unsup", "randaugment", 7) == "data/unsup/randaugment/copy-007"
    assert record_format.copy_dir("data/unsup", "cutout", 7, ("Rotate",)) == "data/unsup/cutout/copy-007"
    one_op = record_format.copy_dir("data/unsup", "randaugment", 7, ("Rotate",))
    assert one_op == "data/unsup/randaugment-1_ops-3025573a/copy-007"
    assert record_format.copy_dir("data/unsup", "randaugment", 7, ("Invert",)) != one_op


def test_the_folders_of_the_unlabelled_images():
    assert record_format.unsup_dir(DataConfig(data_dir="data")) == "data/unsup"
    part = DataConfig(data_dir="data", unsup_size=5000)
    assert record_format.originals_dir(part) == "data/unsup-size_5000/originals"


@pytest.mark.parametrize("facts", [cifar10.FACTS, svhn.FACTS, digits.FACTS], ids=lambda facts: facts.name)
def test_facts_come_back_as_they_were(facts, tmp_path):
    data_dir = str(tmp_path / "new" / "folder")
    record_format.write_facts(data_dir, facts)
    record_format.write_facts(data_dir, facts)
    assert record_format.read_facts(data_dir) == facts


def test_records_of_another_data_set_are_refused(tmp_path):
    record_format.write_facts(str(tmp_path), cifar10.FACTS)
    with pytest.raises(
        ValueError, match=r"holds records of another data set \(.*dataset\.json\): choose another --data_dir"
    ):
        record_format.write_facts(str(tmp_path), svhn.FACTS)
    with pytest.raises(ValueError, match="holds records of another data set"):
        record_format.write_facts(str(tmp_path), dataclasses.replace(cifar10.FACTS, flip=False))
    assert json.loads((tmp_path / "dataset.json").read_text())["name"] == "cifar10"


def test_a_folder_without_records_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"data_dir=.* holds no records: there is no .*dataset\.json\. Run `python -m"):
        record_format.read_facts(str(tmp_path))


def test_a_data_dir_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ValueError, match=r"file/data cannot be written \(.*\): make room there or choose another --data_dir"
    ):
        record_format.write_facts(str(tmp_path / "file" / "data"), cifar10.FACTS)
