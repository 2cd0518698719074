"""TFRecords → batches of {"sup", "label", "original", "augmented"}, as a function of seed and step alone.

A training stream can be started at any step and gives the same batches from there on, so that a continued run equals an
uninterrupted one.
"""

import collections
import itertools
import os

import tensorflow as tf

from augmentation import randaugment_tf, weak
from augmentation.randaugment import OP_NAMES
from image import record_format
from utils import records
from utils.record_stream import batches_from_files as _batches_from_files
from utils.record_stream import batches_from_memory as _batches_from_memory

Data = collections.namedtuple("Data", "facts sup unsup dev test")
SUP, ORIGINAL, AUGMENTED = range(3)  # the views of a batch


# ---- which records --------------------------------------------------------------------------------------------------


def open_data(config):
    """Finds and checks all records that a run needs, before its first step.

    Returns:
      Data: facts, and lists of records.RecordSet; `dev` and `test` are empty where there are none.
    """
    facts = record_format.read_facts(config.data_dir)
    if facts.name != config.task_name:
        raise ValueError(f"data_dir={config.data_dir} holds records of {facts.name}, not task_name={config.task_name}.")
    sup_dir = record_format.sup_dir(
        config.data_dir, config.sup_size, config.use_equal_split, config.label_seed, config.dev_size
    )
    sup, unsup = [_read_set(config, os.path.join(sup_dir, "train"), "sup")], []
    if config.sup_aug != "crop_flip" and config.aug_mode == "offline":
        sup = _read_copies(config, sup_dir, config.sup_aug, "sup")
    if config.unsup_ratio and config.aug_mode == "offline":
        unsup_dir = record_format.unsup_dir(config.data_dir, config.unsup_size)
        unsup = _read_copies(config, unsup_dir, config.aug, "unsup")
    elif config.unsup_ratio:
        originals_dir = record_format.originals_dir(config.data_dir, config.unsup_size)
        unsup = [_read_set(config, originals_dir, "unsup --aug_mode=online")]
    dev = [_read_set(config, os.path.join(sup_dir, "dev"), "sup")] if config.dev_size else []
    test = [_read_set(config, os.path.join(config.data_dir, "test"), "sup")] if facts.test_size else []
    return Data(facts, sup, unsup, dev, test)


def _read_set(config, set_dir, data_type, **expected):
    advice = (
        f"Run `python -m image.preprocess --task_name={config.task_name} --data_type={data_type} "
        f"--output_dir={config.data_dir}` with the same data flags as the training."
    )
    return records.read_set(set_dir, expected, advice)


def _read_copies(config, parent_dir, augmentation, data_type):
    ops = config.chosen_ops
    directories = [record_format.copy_dir(parent_dir, augmentation, copy, ops) for copy in range(config.aug_copy)]
    written = list(itertools.takewhile(tf.io.gfile.exists, directories))
    if len(written) < config.aug_copy:
        flag = "sup_aug" if data_type == "sup" else "aug"
        raise ValueError(
            f"aug_copy={config.aug_copy}, but {os.path.dirname(directories[0])} has {len(written)} copies. "
            f"Write more with `python -m image.preprocess --data_type={data_type} --{flag}={augmentation} "
            f"--aug_copy={config.aug_copy}` and the same data flags, or train with a smaller --aug_copy."
        )
    return [
        _read_set(config, directory, data_type, augmentation=augmentation, ops=_expected_ops(config, augmentation))
        for directory in directories
    ]


def _expected_ops(config, augmentation):
    """What info.json has of the operations: nothing if they are all."""
    return list(config.chosen_ops) if augmentation == "randaugment" and config.chosen_ops != OP_NAMES else None


# ---- training -------------------------------------------------------------------------------------------------------


def create_train_dataset(config, data, start_step=0):
    """Global batches for the steps start_step, start_step + 1, …, without end."""
    facts, padding = data.facts, data.facts.image_size // 8  # 4 pixels at 32 × 32

    def seed_of(step, view):
        # Each view has its own draws: the two views of an unlabelled image are cropped independently.
        return tf.stack([3 * config.seed + view, tf.cast(step, tf.int32)])

    def augment_weakly(images, step, view):
        draw = weak.draw_crop_flip(seed_of(step, view), images.shape[0], padding, facts.flip)
        return weak.crop_flip(images, *draw, padding)

    def parse_views(serialized, keys, augmentation, step, view):
        """Parses `keys` and "augmented", which is in the records or made now."""
        if config.aug_mode == "offline" and (view == AUGMENTED or augmentation != "crop_flip"):
            return record_format.parse(serialized, facts.image_size, {"augmented", *keys})
        parsed = record_format.parse(serialized, facts.image_size, {"original", *keys})
        seed = tf.random.experimental.stateless_fold_in(seed_of(step, view), 1)
        options = {"ops": config.chosen_ops} if augmentation == "randaugment" else {}
        augmented = randaugment_tf.AUGMENTATIONS[augmentation](parsed["original"][..., :3], seed, **options)
        return parsed | {"augmented": augmented}

    def create_batch(step, sup_records, unsup_records=None):
        sup = parse_views(sup_records, ["label"], config.sup_aug, step, SUP)
        batch = {"sup": augment_weakly(sup["augmented"], step, SUP), "label": sup["label"]}
        if unsup_records is not None:
            unsup = parse_views(unsup_records, ["original"], config.aug, step, AUGMENTED)
            batch["original"] = augment_weakly(unsup["original"], step, ORIGINAL)
            batch["augmented"] = augment_weakly(unsup["augmented"], step, AUGMENTED)
        return batch

    streams = [tf.data.Dataset.range(start_step, tf.int64.max)]
    streams.append(
        _record_batches(data.sup, config.train_batch_size, 2 * config.seed, start_step, config.shuffle_buffer)
    )
    if data.unsup:
        batch_size = config.train_batch_size * config.unsup_ratio
        streams.append(_record_batches(data.unsup, batch_size, 2 * config.seed + 1, start_step, config.shuffle_buffer))
    return tf.data.Dataset.zip(tuple(streams)).map(create_batch, num_parallel_calls=tf.data.AUTOTUNE)


def _record_batches(record_sets, batch_size, seed, start_step, shuffle_buffer):
    """Batches of serialised records: pass after pass over all records, each in its own random order."""
    paths = [path for record_set in record_sets for path in record_set.paths]
    num_records = sum(record_set.num_examples for record_set in record_sets)
    if num_records <= shuffle_buffer:
        return _batches_from_memory(paths, num_records, batch_size, seed, start_step)
    return _batches_from_files(paths, num_records, batch_size, seed, start_step, shuffle_buffer)


# ---- evaluation -----------------------------------------------------------------------------------------------------


def create_eval_dataset(record_sets, image_size, batch_size):
    """Batches of fixed size in the order of the records; the last one is filled up with examples of weight 0."""
    paths = [path for record_set in record_sets for path in record_set.paths]

    def create_batch(serialized):
        parsed = record_format.parse(serialized, image_size, ["original", "label"])
        weights = tf.ones_like(parsed["label"], tf.float32)
        return pad_batch({"sup": parsed["original"], "label": parsed["label"], "weight": weights}, batch_size)

    return tf.data.TFRecordDataset(paths).batch(batch_size).map(create_batch, num_parallel_calls=tf.data.AUTOTUNE)


def pad_batch(batch, batch_size):
    """Fills up a dict of tensors [n, …] with zeros to [batch_size, …]."""
    missing = batch_size - tf.shape(batch["label"])[0]

    def pad(values):
        padded = tf.pad(values, [[0, missing]] + [[0, 0]] * (values.shape.rank - 1))
        return tf.ensure_shape(padded, [batch_size, *values.shape[1:]])

    return {key: pad(values) for key, values in batch.items()}
