"""Standardize, the layer before a head, whose mean can follow the features while the layers below it are trained."""

import contextlib

import tensorflow as tf
from tensorflow.keras import layers

from utils.tracing import as_written

MOMENTUM = 0.95  # what a step leaves of the mean before it


class Standardize(layers.Layer):
    """Brings each feature to mean 0 and deviation 1, by numbers that are weights of the network but never trained."""

    see = None  # what gets the mean features of a batch: see Follower

    def build(self, shape):
        # Every replica gives the mean the same value.
        options = {"trainable": False, "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA}
        self.mean = self.add_weight("mean", shape[-1:], initializer="zeros", **options)
        self.deviation = self.add_weight("deviation", shape[-1:], initializer="ones", **options)

    def call(self, features):
        features = tf.cast(features, self.mean.dtype)
        if self.see is not None:
            self.see(tf.reduce_mean(features, axis=0))
        return (features - self.mean) / self.deviation


class Follower:
    """Lets the mean of a network's Standardize layer, if it has one, follow the features of the unlabelled examples.

    Where the layers below are trained, the features move. Most of that is the same for all examples: it would move
    their predictions towards some of the classes, away from the shares that the head has learnt.
    """

    def __init__(self, network):
        self.layer = next((layer for layer in network.layers if isinstance(layer, Standardize)), None)
        self.batch_means = []

    @contextlib.contextmanager
    def watch(self):
        """What goes through the network inside counts."""
        if self.layer is None:
            yield
            return
        self.layer.see = self.batch_means.append
        try:
            yield
        finally:
            self.layer.see = None

    @as_written
    def update(self):
        """Moves the mean towards that of all that was seen, on all replicas, in passes of equal size."""
        if self.batch_means:
            batch_mean = tf.add_n(self.batch_means) / len(self.batch_means)
            batch_mean = tf.distribute.get_replica_context().all_reduce("MEAN", batch_mean)
            self.layer.mean.assign_add((1.0 - MOMENTUM) * (batch_mean - self.layer.mean))
