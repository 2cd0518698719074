"""Dropout that a training continued from a checkpoint draws as an uninterrupted one would."""

import tensorflow as tf
from tensorflow.keras import layers


class Dropout(layers.Layer):
    """Takes the seed of each mask from `next_seed`, a function without arguments.

    Keras' own layer keeps its random state where no checkpoint sees it.
    """

    def __init__(self, rate, next_seed, **kwargs):
        super().__init__(**kwargs)
        self.rate, self.next_seed = rate, next_seed

    def call(self, inputs, training=False):
        if not training or not self.rate:
            return inputs
        return tf.nn.experimental.stateless_dropout(inputs, self.rate, self.next_seed())


def create_counter(layer):
    """Gives `layer` a weight that counts the masks drawn so far; each replica counts for itself, as all draw alike."""
    return layer.add_weight(
        name="mask_counter",
        shape=[],
        dtype=tf.int64,
        initializer="zeros",
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def draw_seed(seed, counter):
    """A seed that depends on nothing but `seed`, the count and the replica. (XLA makes other numbers of it.)"""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    pair = tf.stack([tf.constant(seed, tf.int64), counter])
    counter.assign_add(1)
    return tf.random.experimental.stateless_fold_in(pair, tf.cast(replica, tf.int64))
