"""Random numbers inside a network that a training continued from a checkpoint draws as an uninterrupted one would."""

import tensorflow as tf


def create_counter(layer, name):
    """Gives `layer` a weight that counts its draws; each replica counts for itself, since all make the same calls."""
    return layer.add_weight(
        name=name,
        shape=[],
        dtype=tf.int64,
        initializer="zeros",
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def draw_seed(seed, counter):
    """A new seed, which depends on nothing but `seed`, the count and the replica. (XLA makes other numbers of it.)"""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    pair = tf.stack([tf.constant(seed, tf.int64), counter])
    counter.assign_add(1)
    return tf.random.experimental.stateless_fold_in(pair, tf.cast(replica, tf.int64))
