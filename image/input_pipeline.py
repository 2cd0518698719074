"""TFRecords → batches of {"sup", "label", "original", "augmented"}, as a function of seed and step alone.

A training stream can be started at any step and gives the same batches from there on, so that a continued run equals an
uninterrupted one.
"""

import collections
import os

import tensorflow as tf

from augmentation import randaugment_tf, weak
from augmentation.randaugment import AUGMENTATIONS, choose_options
from image import record_format
from utils import record_stream, records
from utils.record_stream import WHOLE
from utils.tracing import as_written

Data = collections.namedtuple("Data", "facts sup unsup dev test")
SUP, ORIGINAL, AUGMENTED = range(3)  # the views of a batch
MEMORY = 4 << 30  # bytes of records that may be held for shuffling


# ---- which records --------------------------------------------------------------------------------------------------


def open_data(config):
    """Finds and checks all records that a run needs, before its first step.

    Returns:
      Data: facts, and lists of records.RecordSet; `dev` and `test` are empty where there are none.
    """
    facts = record_format.read_facts(config.data_dir)
    if facts.name != config.task_name:
        raise ValueError(f"data_dir={config.data_dir} holds records of {facts.name}, not task_name={config.task_name}.")
    if config.image_size not in (0, facts.image_size):
        raise ValueError(
            f"image_size={config.image_size}, but data_dir={config.data_dir} holds images of {facts.image_size} "
            "pixels: leave the flag away, or write records of that size to another --data_dir."
        )
    sup_dir, offline = record_format.sup_dir(config), config.aug_mode == "offline"
    sup, unsup = [_read_labelled(config, facts, os.path.join(sup_dir, "train"))], []
    _check_size(sup[0], config.sup_size)
    if offline and not AUGMENTATIONS[config.sup_aug_ops].is_identity:
        sup = _read_copies(config, facts, sup_dir, "sup_aug_ops", "sup")
    if config.unsup_ratio and offline:
        unsup = _read_copies(config, facts, record_format.unsup_dir(config), "aug_ops", "unsup")
    elif config.unsup_ratio:
        unsup = [_read_originals(config, facts)]
    dev = [_read_labelled(config, facts, os.path.join(sup_dir, "dev"))] if config.dev_size else []
    test = [_read_labelled(config, facts, os.path.join(config.data_dir, "test"))] if facts.test_size else []
    return Data(facts, sup, unsup, dev, test)


def _read_labelled(config, facts, set_dir):
    """A small set, all of which is checked before the first step."""
    record_set = records.read_set(set_dir, _expected(facts), _advise(config, "sup"))
    record_format.check_records(record_set, facts, ["original", "label"])
    return record_set


def _read_originals(config, facts):
    advice = _advise(config, "unsup --aug_mode=online")
    set_dir = record_format.originals_dir(config)
    record_set = records.read_set(set_dir, _expected(facts), advice, config.verify_records)
    record_format.check_records(record_set, facts, ["original"], num_checked=1)
    return record_set


def _expected(facts):
    """What the settings of each set say about the data set."""
    return {"image_size": facts.image_size, "num_classes": facts.num_classes}


def _advise(config, data_type):
    return (
        f"Run `python -m image.preprocess --task_name={config.task_name} --data_type={data_type} "
        f"--data_dir={config.data_dir}` with the same data flags as the training."
    )


def _check_size(record_set, sup_size):
    """Earlier versions took the development split out of the sup_size examples."""
    if record_set.num_examples != sup_size:
        raise ValueError(
            f"{record_set.directory} has {record_set.num_examples} examples, expected sup_size={sup_size}: delete "
            f"{os.path.dirname(record_set.directory)} and preprocess again."
        )


def _read_copies(config, facts, parent_dir, setting, data_type):
    """The copies of the augmentation that one of the settings names."""
    augmentation, ops = getattr(config, setting), config.chosen_ops
    set_dirs = [record_format.copy_dir(parent_dir, augmentation, copy, ops) for copy in range(config.aug_copy)]
    options = {name: list(value) for name, value in choose_options(augmentation, ops).items()}
    how_to_write = f"python -m image.preprocess --data_type={data_type} --{setting}={augmentation}"
    # info.json does not name the operations if all
    expected = _expected(facts) | {"augmentation": augmentation, "ops": None} | options
    advice = _advise(config, data_type)
    copies = records.read_copies(set_dirs, expected, advice, how_to_write, config.verify_records)
    keys = ["original", "augmented", "label"] if data_type == "sup" else ["original", "augmented"]
    for copy in copies:
        record_format.check_records(copy, facts, keys, num_checked=None if data_type == "sup" else 1)
    return copies


# ---- training -------------------------------------------------------------------------------------------------------


def limit_memory(config, image_size):
    """The shuffle_buffer, or less if so many records took more than MEMORY."""
    num_pixels = image_size**2
    copies = 3 * num_pixels + -(-num_pixels // 8) if config.aug_mode == "offline" else 0  # "augmented" and "alpha"
    return min(config.shuffle_buffer, MEMORY // (3 * num_pixels + copies))


@as_written
def create_train_dataset(config, data, start_step=0, share=WHOLE):
    """A share of the global batches for the steps start_step, start_step + 1, …, without end.

    Random draws are those of the global batch, so that the shares together are what one host would make.
    """
    facts, padding = data.facts, data.facts.image_size // 8  # 4 pixels at 32 × 32
    shuffle_buffer = limit_memory(config, facts.image_size)

    def seed_of(step, view):
        # Each view has its own draws: the two views of an unlabelled image are cropped independently.
        return tf.stack([3 * config.seed + view, tf.cast(step, tf.int32)])

    def augment_weakly(images, step, view):
        batch_size = images.shape[0] * share.count
        draw = weak.draw_crop_flip(seed_of(step, view), batch_size, padding, facts.flip)
        return weak.crop_flip(images, *(share.take(values, batch_size) for values in draw), padding)

    def parse_views(serialized, keys, augmentation, step, view):
        """Parses `keys` and "augmented", which is in the records or made now."""
        if config.aug_mode == "offline" and (view == AUGMENTED or not AUGMENTATIONS[augmentation].is_identity):
            return record_format.parse(serialized, facts.image_size, {"augmented", *keys})
        parsed = record_format.parse(serialized, facts.image_size, {"original", *keys})
        seed = tf.random.experimental.stateless_fold_in(seed_of(step, view), 1)
        options = choose_options(augmentation, config.chosen_ops)
        augmented = randaugment_tf.AUGMENTATIONS[augmentation](parsed["original"][..., :3], seed, share, **options)
        return parsed | {"augmented": augmented}

    def create_batch(step, sup_records, unsup_records=None):
        sup = parse_views(sup_records, ["label"], config.sup_aug_ops, step, SUP)
        batch = {"sup": augment_weakly(sup["augmented"], step, SUP), "label": sup["label"]}
        if unsup_records is not None:
            unsup = parse_views(unsup_records, ["original"], config.aug_ops, step, AUGMENTED)
            batch["original"] = augment_weakly(unsup["original"], step, ORIGINAL)
            batch["augmented"] = augment_weakly(unsup["augmented"], step, AUGMENTED)
        return batch

    def create_stream(record_sets, batch_size, seed):
        return record_stream.record_batches(record_sets, batch_size, seed, start_step, shuffle_buffer, share)

    streams = [tf.data.Dataset.range(start_step, tf.int64.max)]
    streams.append(create_stream(data.sup, config.train_batch_size, 2 * config.seed))
    if data.unsup:
        streams.append(create_stream(data.unsup, config.train_batch_size * config.unsup_ratio, 2 * config.seed + 1))
    return tf.data.Dataset.zip(tuple(streams)).map(create_batch, num_parallel_calls=tf.data.AUTOTUNE)


# ---- evaluation -----------------------------------------------------------------------------------------------------


@as_written
def create_eval_dataset(record_sets, image_size, batch_size, share=WHOLE):
    """A share of batches of fixed size in the order of the records; the last is filled up with examples of weight 0."""
    paths = [path for record_set in record_sets for path in record_set.paths]

    def create_batch(serialized):
        parsed = record_format.parse(share.take(serialized, batch_size), image_size, ["original", "label"])
        weights = tf.ones_like(parsed["label"], tf.float32)
        batch = {"sup": parsed["original"], "label": parsed["label"], "weight": weights}
        return record_stream.fill_up(batch, share.size(batch_size))

    return tf.data.TFRecordDataset(paths).batch(batch_size).map(create_batch, num_parallel_calls=tf.data.AUTOTUNE)
