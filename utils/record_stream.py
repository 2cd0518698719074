"""An endless stream of batches of serialised records, as a function of seed and step alone.

It can be started at any step and gives the same batches from there on, so that a continued run equals an uninterrupted
one. Pass follows pass over all records, each in its own random order. A host of several gets its share of each batch.
"""

from typing import NamedTuple

import tensorflow as tf


class Share(NamedTuple):
    """Which of `count` equal parts of every global batch a host makes."""

    index: int = 0
    count: int = 1

    def size(self, batch_size):
        return batch_size // self.count

    def take(self, values, batch_size):
        """Rows of this share, of a tensor [batch_size, …]; fewer or none if the tensor has fewer rows."""
        size = self.size(batch_size)
        return values if self.count == 1 else values[self.index * size : (self.index + 1) * size]


WHOLE = Share()


def record_batches(record_sets, batch_size, seed, start_step, shuffle_buffer, share=WHOLE):
    """Batches of serialised records for the steps start_step, start_step + 1, …

    Args:
      record_sets: list of records.RecordSet.
      batch_size: of the global batch, of which `share` is taken.
      shuffle_buffer: how many records may be held in memory.
    """
    num_records = sum(record_set.num_examples for record_set in record_sets)
    if num_records <= shuffle_buffer:
        return batches_from_memory(record_sets, batch_size, seed, start_step, share)
    paths = [path for record_set in record_sets for path in record_set.paths]
    batches = batches_from_files(paths, num_records, batch_size, seed, start_step, shuffle_buffer)
    return batches if share == WHOLE else batches.map(lambda batch: share.take(batch, batch_size))


def read_all(record_sets):
    """All serialised records, in one tensor."""
    paths = [path for record_set in record_sets for path in record_set.paths]
    num_records = sum(record_set.num_examples for record_set in record_sets)
    return tf.data.TFRecordDataset(paths).batch(num_records).get_single_element()


def batches_from_memory(record_sets, batch_size, seed, start_step, share=WHOLE):
    """All records fit in the shuffle buffer: keep them there and compute which one comes at which position."""
    num_records = sum(record_set.num_examples for record_set in record_sets)
    all_records = read_all(record_sets)

    def batch_of_step(step):
        return tf.gather(all_records, order_of_step(step, num_records, batch_size, seed, share))

    return tf.data.Dataset.range(start_step, tf.int64.max).map(batch_of_step, num_parallel_calls=tf.data.AUTOTUNE)


def order_of_step(step, num_records, batch_size, seed, share=WHOLE):
    """Which of `num_records` are in this share of the batch of a step: int64 [share.size(batch_size)]."""
    positions = share.take(step * batch_size + tf.range(batch_size, dtype=tf.int64), batch_size)
    passes = positions // num_records
    seeds = tf.stack(
        [tf.fill([share.size(batch_size)], tf.constant(seed, tf.int64)), passes, tf.zeros_like(passes)], axis=1
    )
    # The public index_shuffle of TensorFlow 2.15 pads a matrix of seeds wrongly; the operation itself takes it. By
    # default it makes 4 rounds, which for small seeds leave few records nearly as they lie on disk; 8 do not.
    order = tf.raw_ops.RandomIndexShuffle(
        index=positions % num_records, seed=seeds, max_index=num_records - 1, rounds=8
    )
    return tf.ensure_shape(order, [share.size(batch_size)])


def batches_from_files(
    files, num_records, batch_size, seed, start_step, shuffle_buffer, read_file=tf.data.TFRecordDataset, num_readers=4
):
    """Streams files through a shuffle buffer; to start in mid-pass, what came before is read and passed over.

    Args:
      files: paths, or whatever else `read_file` turns into a dataset of records.
      num_records: in all files together.
      num_readers: how many files are open at once.
    """
    first_pass, num_passed = divmod(start_step * batch_size, num_records)

    def one_pass(number):
        order = tf.random.experimental.stateless_shuffle(files, [seed, tf.cast(number, tf.int32)])
        opened = tf.data.Dataset.from_tensor_slices(order)
        stream = opened.interleave(read_file, cycle_length=num_readers, block_length=16)
        return _shuffle(stream, shuffle_buffer, seed, number).skip(
            tf.where(number == first_pass, tf.cast(num_passed, tf.int64), 0)
        )

    return tf.data.Dataset.range(first_pass, tf.int64.max).flat_map(one_pass).batch(batch_size, drop_remainder=True)


def _shuffle(dataset, buffer_size, seed, number):
    """Dataset.shuffle with a seed that is a tensor; the method does not take one when TensorFlow's own seed is 0."""
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=buffer_size,
        seed=seed,
        seed2=number + 1,  # two zeros would mean a random seed
        reshuffle_each_iteration=False,
        output_types=[tf.string],
        output_shapes=[[]],
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


def fill_up(batch, batch_size):
    """Fills up each tensor [n, …] of a batch, which may be nested, with zeros to [batch_size, …]."""

    def fill(values):
        missing = batch_size - tf.shape(values)[0]
        padded = tf.pad(values, [[0, missing]] + [[0, 0]] * (values.shape.rank - 1))
        return tf.ensure_shape(padded, [batch_size, *values.shape[1:]])

    return tf.nest.map_structure(fill, batch)
