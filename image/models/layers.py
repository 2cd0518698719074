"""Layers that all image networks share, with the original release's initialisers and batch norm."""

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers


@tf.keras.utils.register_keras_serializable("uda")
class Normalize(layers.Layer):
    """uint8 RGBA → float32 RGB with zero mean and unit deviation; pixels of alpha 0 take the mean colour, 0."""

    def __init__(self, mean, std, **kwargs):
        super().__init__(**kwargs)
        self.mean, self.std = tuple(mean), tuple(std)

    def call(self, images):
        colors = tf.cast(images[..., :3], tf.float32) / 255.0
        covered = tf.cast(images[..., 3:] > 0, tf.float32)
        return (colors - np.float32(self.mean)) / np.float32(self.std) * covered

    def get_config(self):
        return super().get_config() | {"mean": self.mean, "std": self.std}


def conv(inputs, num_filters, kernel_size, strides=1, padding="same"):
    # N(0, sqrt(2 / (k² · filters)))
    initializer = tf.keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")
    layer = layers.Conv2D(
        num_filters, kernel_size, strides, padding=padding, use_bias=False, kernel_initializer=initializer
    )
    return layer(inputs)


def batch_norm(inputs, synchronized, scale_initializer="ones"):
    layer = layers.BatchNormalization(
        momentum=0.9, epsilon=1e-5, gamma_initializer=scale_initializer, synchronized=synchronized
    )
    return layer(inputs)


def batch_norm_relu(inputs, synchronized):
    return layers.ReLU()(batch_norm(inputs, synchronized))


def classifier_head(inputs, num_classes, initializer=None):
    """Global average pooling and a dense layer, whose initial range is set by the number of classes by default."""
    limit = 1.0 / num_classes**0.5
    initializer = initializer or tf.keras.initializers.RandomUniform(-limit, limit)
    # In 32 bits, whatever the layers before compute in.
    pooled = layers.GlobalAveragePooling2D(dtype="float32")(inputs)
    return layers.Dense(num_classes, kernel_initializer=initializer, dtype="float32", name="logits")(pooled)
