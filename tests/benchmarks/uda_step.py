"""Cost of the UDA step per image, beside a plain supervised Keras step of the same network on as many images.

python -m tests.benchmarks.uda_step [--batch_size=8] [--wrn_depth=28]
"""

import argparse

import numpy as np
import tensorflow as tf

from image.config import Config
from image.datasets import cifar10
from image.models import create_network
from image.train import create_model, create_optimizer
from tests.benchmarks.randaugment import seconds


def create_uda_step(config, rng):
    model = create_model(config, cifar10.FACTS)
    model.compile(create_optimizer(config))
    sizes = {"sup": 1, "original": config.unsup_ratio, "augmented": config.unsup_ratio}
    batch = {key: random_images(rng, ratio * config.train_batch_size) for key, ratio in sizes.items()}
    return create_step(model, batch | {"label": rng.integers(0, 10, config.train_batch_size)})


def create_plain_step(config, rng):
    model = create_network(config, cifar10.FACTS)
    model.compile(create_optimizer(config), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    num_images = config.examples_per_step
    return create_step(model, (random_images(rng, num_images), rng.integers(0, 10, num_images)))


def random_images(rng, num_images):
    return rng.integers(0, 256, [num_images, 32, 32, 4]).astype(np.uint8)


def create_step(model, batch):
    """One step through Keras' own training function, as `fit` runs it."""
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    train_function = model.make_train_function()
    return lambda: tf.nest.map_structure(np.asarray, train_function(iterator))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--wrn_depth", type=int, default=28)
    parser.add_argument("--num_rounds", type=int, default=15)
    arguments = parser.parse_args()
    config = Config(train_batch_size=arguments.batch_size, wrn_depth=arguments.wrn_depth)
    rng = np.random.default_rng(0)
    steps = {"UDA": create_uda_step(config, rng), "plain": create_plain_step(config, rng)}
    durations = {name: [] for name in steps}
    for _ in range(arguments.num_rounds + 2):
        for name, step in steps.items():
            durations[name].append(seconds(step)[0])
    medians = {name: np.median(values[2:]) for name, values in durations.items()}
    for name, value in medians.items():
        print(f"{name:6} step: {1000 * value / config.examples_per_step:7.3f} ms per image")
    ratios = np.array(durations["UDA"][2:]) / durations["plain"][2:]
    print(f"UDA / plain: {np.median(ratios):.3f} (median of {len(ratios)} pairs)")


if __name__ == "__main__":
    main()
