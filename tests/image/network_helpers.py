"""What the tests of several networks share."""

import dataclasses

import numpy as np
import tensorflow as tf

from image.datasets import cifar10

FACTS = cifar10.FACTS


def facts_of_size(image_size, num_classes=3):
    return dataclasses.replace(FACTS, image_size=image_size, class_names=tuple(map(str, range(num_classes))))


def num_trainable(network):
    return sum(int(np.prod(weight.shape)) for weight in network.trainable_weights)


def random_images(num_images, image_size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, [num_images, image_size, image_size, 4]).astype(np.uint8)


def check_restored_from_configuration(network, image_size):
    copy = tf.keras.Model.from_config(network.get_config())
    copy.set_weights(network.get_weights())
    images = random_images(2, image_size)
    np.testing.assert_array_equal(copy(images), network(images))
    np.testing.assert_array_equal(copy(images, training=True), network(images, training=True))
