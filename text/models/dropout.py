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
