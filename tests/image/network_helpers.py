"""What the tests of several networks share."""

import dataclasses

import numpy as np
import tensorflow as tf

from image.datasets import DATASETS
from utils.distribution import distribute
from utils.uda_model import UDAModel

FACTS = DATASETS["cifar10"]


def facts_of_size(image_size, num_classes=3):
    return dataclasses.replace(FACTS, image_size=image_size, class_names=tuple(map(str, range(num_classes))))


def num_trainable(network):
    return sum(int(np.prod(weight.shape)) for weight in network.trainable_weights)


def random_images(num_images, image_size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, [num_images, image_size, image_size, 4]).astype(np.uint8)


def create_batch(image_size, seed=0):
    views = {key: random_images(2, image_size, 3 * seed + view) for view, key in enumerate(("original", "augmented"))}
    return views | {"sup": random_images(2, image_size, 3 * seed + 2), "label": np.array([0, 1])}


def create_model(create_network, learning_rate=0.01, jit_compile=False):
    tf.keras.utils.set_random_seed(0)
    model = UDAModel(create_network, num_classes=3, train_steps=10)
    model.compile(tf.keras.optimizers.SGD(learning_rate, jit_compile=False), jit_compile=jit_compile)
    return model


def train(model, batches):
    """One training step for each batch; returns the metrics."""
    dataset = tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(lambda *values: np.stack(values), *batches))
    dataset = distribute(model.distribute_strategy, lambda: dataset)
    return model.fit(dataset, steps_per_epoch=len(batches), verbose=0).history


def check_one_compiled_step(create_network, image_size):
    """One step under XLA through UDAModel: the loss is finite and every trainable weight has moved."""
    model = create_model(create_network, learning_rate=10.0, jit_compile=True)
    before = [weight.numpy() for weight in model.network.trainable_weights]
    history = train(model, [create_batch(image_size)])
    assert np.isfinite(history["loss"]).all()
    for value, weight in zip(before, model.network.trainable_weights):
        assert np.isfinite(weight).all() and np.abs(weight - value).max() > 0, weight.name
    return model


def check_restored_from_configuration(network, image_size):
    copy = tf.keras.Model.from_config(network.get_config())
    copy.set_weights(network.get_weights())
    images = random_images(2, image_size)
    np.testing.assert_array_equal(copy(images), network(images))
    np.testing.assert_array_equal(copy(images, training=True), network(images, training=True))
