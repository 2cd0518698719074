"""What an image record holds, and where each set of records lies in data_dir.

    data_dir/
      dataset.json                     size, classes, normalisation (image.datasets.Facts)
      test/                            {"original", "label"}
      sup-size_4000/train, dev/        {"original", "label"}
      sup-size_4000/randaugment/copy-000/   {"original", "augmented", "alpha", "label"}
      unsup/randaugment/copy-000/      {"original", "augmented", "alpha"}
      unsup/randaugment-5_ops-1a2b3c4d/copy-000/   the same, made with a part of the operations
      unsup/originals/                 {"original"}, for online augmentation
      unsup-size_5000/…                like unsup/, with a part of the unlabelled images

Images are bytes of size × size × 3; alpha is one bit per pixel, 0 where an augmentation left no picture. "index" is the
image's position in the training (or test) data.
"""

import dataclasses
import os
import zlib

import numpy as np
import tensorflow as tf

from augmentation.randaugment import OP_NAMES, choose_options
from image.datasets.source import parse_facts
from utils import files, labelled_subsets, records


def sup_dir(config):
    """Folder of the draw of labelled examples that an image.config.DataConfig describes."""
    kind = "equal" if config.use_equal_split else ""
    return os.path.join(config.data_dir, labelled_subsets.folder_name(config, kind))


def unsup_dir(config):
    """Folder of the unlabelled sets."""
    return os.path.join(config.data_dir, f"unsup-size_{config.unsup_size}" if config.unsup_size else "unsup")


def originals_dir(config):
    return os.path.join(unsup_dir(config), "originals")


def copy_dir(parent_dir, augmentation, copy, ops=OP_NAMES):
    """Folder of one copy. An augmentation with a part of its operations has its own."""
    if choose_options(augmentation, ops):
        augmentation += f"-{len(ops)}_ops-{zlib.crc32(','.join(ops).encode()):08x}"
    return os.path.join(parent_dir, augmentation, f"copy-{copy:03d}")


def write_facts(data_dir, facts):
    """Writes dataset.json, or checks that it describes the same data."""
    path = os.path.join(data_dir, "dataset.json")
    if not tf.io.gfile.exists(path):
        with records.explain_refusal(data_dir):
            tf.io.gfile.makedirs(data_dir)
            files.create_json(path, dataclasses.asdict(facts))  # another process may be faster
    if read_facts(data_dir) != facts:
        raise ValueError(f"{data_dir} holds records of another data set ({path}): choose another --data_dir.")


def read_facts(data_dir):
    path = os.path.join(data_dir, "dataset.json")
    if not tf.io.gfile.exists(path):
        raise ValueError(f"data_dir={data_dir} holds no records: there is no {path}. Run `python -m image.preprocess`.")
    return parse_facts(path, files.read_json(path))


def encode(originals, indices, labels=None, augmented=None):
    """Serialises a batch of records, one after the other.

    Args:
      originals: uint8 [batch, size, size, 3].
      indices, labels: int [batch].
      augmented: uint8 [batch, size, size, 4] with alpha 0 or 255, or None.
    """
    columns = {"original": (image.tobytes() for image in originals), "index": indices.tolist()}
    if labels is not None:
        columns["label"] = labels.tolist()
    if augmented is not None:
        colors = np.ascontiguousarray(augmented[..., :3])
        alphas = np.packbits(augmented[..., 3].reshape(len(augmented), -1) > 0, axis=1)
        columns["augmented"] = (image.tobytes() for image in colors)
        columns["alpha"] = (alpha.tobytes() for alpha in alphas)
    for values in zip(*columns.values()):
        yield records.encode_example(dict(zip(columns, values)))


def parse(serialized, image_size, keys):
    """Parses a batch of records.

    Args:
      keys: which of "original", "augmented", "label" and "index" are wanted.

    Returns:
      dict: images as uint8 RGBA [batch, size, size, 4], numbers as int64 [batch].
    """
    features = {key: tf.io.FixedLenFeature([], tf.string) for key in keys if key in ("original", "augmented")}
    features |= {key: tf.io.FixedLenFeature([], tf.int64) for key in keys if key in ("label", "index")}
    if "augmented" in keys:
        features["alpha"] = tf.io.FixedLenFeature([], tf.string)
    parsed = tf.io.parse_example(serialized, features)
    shape = [serialized.shape[0] or -1, image_size, image_size]
    if "augmented" in keys:
        alpha = _unpack_bits(tf.io.decode_raw(parsed.pop("alpha"), tf.uint8), image_size**2)
        parsed["augmented"] = _decode_rgba(parsed["augmented"], alpha, shape)
    if "original" in keys:
        alpha = tf.fill([tf.shape(serialized)[0], image_size**2], tf.constant(255, tf.uint8))
        parsed["original"] = _decode_rgba(parsed["original"], alpha, shape)
    return parsed


def check_records(record_set, facts, keys, num_checked=None):
    """Refuses records that the input pipeline could not parse, or whose labels are of no class.

    Args:
      num_checked: look at so many records only, the first ones; None at all.
    """
    num_pixels = facts.image_size**2
    sizes = {"original": 3 * num_pixels, "augmented": 3 * num_pixels, "alpha": -(-num_pixels // 8)}
    kept = [*keys, *(["alpha"] if "augmented" in keys else [])]
    features = {key: tf.io.FixedLenFeature([], tf.string if key in sizes else tf.int64) for key in kept}

    def is_wrong(serialized):
        parsed = tf.io.parse_example(serialized, features)
        wrong = [tf.strings.length(parsed[key]) != sizes[key] for key in kept if key in sizes]
        if "label" in kept:
            wrong.append((parsed["label"] < 0) | (parsed["label"] >= facts.num_classes))
        return tf.reduce_any(wrong)

    for path in record_set.paths[:num_checked]:
        try:
            examples = tf.data.TFRecordDataset(path).take(num_checked or -1)
            batches = examples.batch(max((1 << 24) // sum(sizes.values()), 1))
            wrong = any(is_wrong(batch) for batch in batches)  # eagerly: to trace a graph takes longer
        except tf.errors.OpError:  # DataLossError: damaged; InvalidArgumentError: other features
            wrong = True
        if wrong:
            raise ValueError(
                f"{path} has records that are damaged or do not fit dataset.json, with image_size={facts.image_size} "
                f"and {facts.num_classes} classes: delete {record_set.directory} and preprocess again."
            )


def _decode_rgba(encoded, alpha, shape):
    colors = tf.reshape(tf.io.decode_raw(encoded, tf.uint8), [*shape, 3])
    return tf.concat([colors, tf.reshape(alpha, [*shape, 1])], axis=-1)


def _unpack_bits(packed, num_bits):
    """The inverse of np.packbits for each row: uint8 [batch, bytes] → 0 or 255, [batch, num_bits]."""
    bits = tf.bitwise.bitwise_and(packed[..., tf.newaxis], tf.constant([128, 64, 32, 16, 8, 4, 2, 1], tf.uint8)) > 0
    bits = tf.reshape(bits, [tf.shape(packed)[0], -1])[:, :num_bits]
    return tf.cast(bits, tf.uint8) * 255
