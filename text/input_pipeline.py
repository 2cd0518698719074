"""TFRecords → batches of {"sup", "label", "original", "augmented"}, as a function of seed and step alone.

A training stream can be started at any step and gives the same batches from there on, so that a continued run equals an
uninterrupted one. A text in a batch is {"ids", "type_ids"}, int32 [batch, length], filled up with 0. Texts of about the
same length come together, so that little of a batch is padding.
"""

import collections
import functools
import os

import tensorflow as tf

from augmentation import text_ops
from text import record_format
from utils import record_stream, records
from utils.record_stream import WHOLE
from utils.tracing import as_written

# `layout` has the functions parse, num_pieces and pad, as record_format has them, for what the records hold of a text.
Data = collections.namedtuple("Data", "facts tokenization sup unsup dev test layout", defaults=[record_format])

LENGTH_STEP = 16  # a batch is as long as its longest text, rounded up to a multiple of this
MAX_WINDOW = 16  # batches that are drawn together and sorted by length
MIN_WINDOWS = 8  # in a pass; were there fewer, the same text would often come twice in a window, and so in a batch


# ---- which records --------------------------------------------------------------------------------------------------


def open_data(config, with_unlabeled=None, with_labelled=True):
    """Finds and checks all records that a run needs, before its first step.

    Args:
      with_unlabeled: whether it needs the unlabelled texts; None: if its unsup_ratio says so.
      with_labelled: whether it needs the labelled sets and the test set.

    Returns:
      Data: facts, tokenization, and lists of records.RecordSet; `dev` and `test` are empty where there are none.
    """
    facts, tokenization = record_format.read_dataset(config.data_dir)
    if facts.name != config.task_name:
        raise ValueError(f"data_dir={config.data_dir} holds records of {facts.name}, not task_name={config.task_name}.")
    expected = {"max_seq_length": config.max_seq_length}
    advice = f"Train with --max_seq_length={tokenization.max_seq_length}, or preprocess into another folder."
    record_format.check_tokenization(config.data_dir, tokenization, expected, advice)
    sup, dev, test, unsup = [], [], [], []
    if with_labelled:
        sup_dir = record_format.sup_dir(config)
        read_set = functools.partial(_read_set, config, facts, tokenization)
        sup = [read_set(os.path.join(sup_dir, "train"))]
        dev = [read_set(os.path.join(sup_dir, "dev"))] if config.dev_size else []
        test_dir = os.path.join(config.data_dir, "test")  # a user's own files may have no test set
        test = [read_set(test_dir)] if tf.io.gfile.exists(test_dir) else []
    if config.unsup_ratio if with_unlabeled is None else with_unlabeled:
        aug_ops = text_ops.split_ops(config.aug_ops)
        unsup = [copy for aug_op in aug_ops for copy in _read_copies(config, facts, tokenization, aug_op)]
        _check_texts(unsup)
    return Data(facts, tokenization, sup, unsup, dev, test)


def _read_set(config, facts, tokenization, set_dir):
    """A small set, all of which is checked before the first step."""
    record_set = records.read_set(set_dir, tokenization.as_dict(), _advice(config, "sup"))
    record_format.check_records(record_set, facts, tokenization, ["original", "label"])
    return record_set


def _read_copies(config, facts, tokenization, aug_op):
    set_dirs = [record_format.copy_dir(config.data_dir, aug_op, copy) for copy in range(config.aug_copy)]
    how_to_write = f"python -m text.preprocess --data_type=unsup --aug_ops={aug_op}"
    expected, advice = {"aug_op": aug_op, **tokenization.as_dict()}, _advice(config, "unsup")
    copies = records.read_copies(set_dirs, expected, advice, how_to_write, config.verify_records)
    for copy in copies:
        record_format.check_records(copy, facts, tokenization, record_format.VIEWS, num_checked=1)
    return copies


def _check_texts(copies):
    """Refuses copies of different texts; frozen features pair those of all copies with one set of originals."""
    first = copies[0]
    for copy in copies[1:]:
        if _texts_of(copy) != _texts_of(first):
            raise ValueError(
                f"{copy.directory} ({copy.num_examples:,} texts) and {first.directory} ({first.num_examples:,}) were "
                "made of different unlabelled texts: expected the same in all copies. Preprocess with all --aug_ops "
                "from the same files, into another folder."
            )


def _texts_of(copy):
    return copy.num_examples, copy.settings.get("texts_sha256")


def _advice(config, data_type):
    return (
        f"Run `python -m text.preprocess --task_name={config.task_name} --data_type={data_type} "
        f"--data_dir={config.data_dir}` with the same data flags as the training."
    )


# ---- training -------------------------------------------------------------------------------------------------------


@as_written
def create_train_dataset(config, data, start_step=0, fixed_length=False, share=WHOLE):
    """A share of the global batches for the steps start_step, start_step + 1, …, without end.

    Args:
      fixed_length: pad all texts to max_seq_length, for devices that compile a program for each shape. The batches
        hold the same texts either way. Otherwise the longest text of the global batch tells its length.
    """

    def create_batch(sup, unsup=None):
        batch = {"sup": pad(*sup, ["original"])["original"], "label": sup[0]["label"]}
        return batch if unsup is None else batch | pad(*unsup, record_format.VIEWS)

    def pad(examples, longest, views):
        length = batch_length(longest, data.tokenization.max_seq_length, fixed_length)
        return {view: data.layout.pad(examples[view], length) for view in views}

    draw = {"start_step": start_step, "shuffle_buffer": config.shuffle_buffer, "layout": data.layout, "share": share}
    streams = [example_batches(data.sup, ["original", "label"], config.train_batch_size, 2 * config.seed, **draw)]
    if data.unsup:
        batch_size = config.train_batch_size * config.unsup_ratio
        streams.append(example_batches(data.unsup, record_format.VIEWS, batch_size, 2 * config.seed + 1, **draw))
    return tf.data.Dataset.zip(tuple(streams)).map(create_batch, num_parallel_calls=tf.data.AUTOTUNE)


def example_batches(record_sets, keys, batch_size, seed, start_step, shuffle_buffer, layout=record_format, share=WHOLE):
    """A share of batches of parsed examples of similar length, with the length of the longest in the whole batch.

    The records of a window of several steps are drawn at once, sorted by length and cut into batches, which come in
    random order. So which window holds a step, and what is in it, can be computed for any step.
    """
    num_records = sum(record_set.num_examples for record_set in record_sets)
    num_batches = min(max(num_records // (MIN_WINDOWS * batch_size), 1), MAX_WINDOW)
    first_window, num_passed = divmod(start_step, num_batches)

    def cut(window, lengths):
        """Which rows of a window are in this share of each of its batches, and the longest of the whole batch."""
        order = tf.reshape(tf.argsort(lengths, stable=True), [num_batches, batch_size])
        order = tf.random.experimental.stateless_shuffle(order, tf.stack([seed, tf.cast(window, tf.int32)]))
        own = tf.stack([share.take(row, batch_size) for row in tf.unstack(order)])
        return own, tf.reduce_max(tf.gather(lengths, order), axis=1)

    def cut_from_memory(window):
        rows = record_stream.order_of_step(window, num_records, num_batches * batch_size, seed)
        own, longest = cut(window, tf.gather(all_lengths, rows))
        examples = layout.parse(tf.reshape(tf.gather(all_records, tf.gather(rows, own)), [-1]), keys)
        return tf.nest.map_structure(lambda column: tf.reshape(column, own.shape), examples), longest

    def cut_from_files(window, serialized):
        examples = layout.parse(serialized, keys)
        own, longest = cut(window, _lengths(layout, examples))
        return tf.nest.map_structure(lambda column: tf.gather(column, own), examples), longest

    numbers = tf.data.Dataset.range(first_window, tf.int64.max)
    if num_records <= shuffle_buffer:
        # Lengths are known in advance, so that only the records of this share are parsed again.
        all_records = record_stream.read_all(record_sets)
        all_lengths = _lengths(layout, layout.parse(all_records, [key for key in keys if key in record_format.VIEWS]))
        windows = numbers.map(cut_from_memory, num_parallel_calls=tf.data.AUTOTUNE)
    else:
        order = (num_batches * batch_size, seed, first_window, shuffle_buffer)
        windows = tf.data.Dataset.zip((numbers, record_stream.record_batches(record_sets, *order)))
        windows = windows.map(cut_from_files, num_parallel_calls=tf.data.AUTOTUNE)
    return windows.unbatch().skip(num_passed)


def _lengths(layout, examples):
    """Length of each example: that of the longer one of its views, which share one batch length."""
    lengths = [layout.num_pieces(examples[view]) for view in record_format.VIEWS if view in examples]
    return tf.reduce_max(lengths, axis=0)


def batch_length(lengths, max_seq_length, fixed_length):
    """How long a batch of texts of these lengths is; a host may have none in the last one of an evaluation."""
    if fixed_length:
        return max_seq_length
    longest = tf.maximum(tf.reduce_max(lengths), 1)
    return tf.minimum((longest + LENGTH_STEP - 1) // LENGTH_STEP * LENGTH_STEP, max_seq_length)


# ---- evaluation -----------------------------------------------------------------------------------------------------


@as_written
def create_eval_dataset(record_sets, max_seq_length, batch_size, fixed_length=False, layout=record_format, share=WHOLE):
    """A share of batches of fixed size with every example once, those of similar length together; "row" tells which.

    The last batch is filled up with examples of weight 0.
    """

    def create_batch(rows, serialized):
        examples = layout.parse(serialized, ["original", "label"])
        length = batch_length(_lengths(layout, examples), max_seq_length, fixed_length)
        examples = tf.nest.map_structure(lambda column: share.take(column, batch_size), examples)
        batch = {
            "sup": layout.pad(examples["original"], length),
            "label": examples["label"],
            "weight": tf.ones_like(examples["label"], tf.float32),
            "row": share.take(rows, batch_size),
        }
        return record_stream.fill_up(batch, share.size(batch_size))

    return sorted_batches(record_sets, batch_size, layout).map(create_batch, num_parallel_calls=tf.data.AUTOTUNE)


def sorted_batches(record_sets, batch_size, layout=record_format):
    """Batches of records, each once, those of similar length together; the last batch may be smaller.

    Returns:
      a dataset of (number of each record, int64 [batch], and the serialised records).
    """
    paths = [path for record_set in record_sets for path in record_set.paths]

    def sort(rows, serialized):
        order = tf.argsort(_lengths(layout, layout.parse(serialized, ["original"])), stable=True)
        return tf.gather(rows, order), tf.gather(serialized, order)

    windows = tf.data.TFRecordDataset(paths).enumerate().batch(MAX_WINDOW * batch_size)
    return windows.map(sort, num_parallel_calls=tf.data.AUTOTUNE).unbatch().batch(batch_size)
