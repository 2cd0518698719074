"""Speed of RandAugment in tf.data on one core, beside tf-models-official and Pillow, image by image.

python -m tests.benchmarks.randaugment_tf [--num_rounds=15]
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from official.vision.ops import augment as official_augment

from augmentation import image_ops
from augmentation.randaugment import FIRE_PROBABILITY, OPS, REFERENCE_SIZE, draw_policies
from augmentation.randaugment_tf import apply_op, randaugment
from tests import pillow_reference

BATCHES = {32: 448, 224: 32}  # images per batch at each size
MAGNITUDE = 5  # of tf-models-official, which has one for all images: about the mean level


def create_smooth_images(num_images, size, rng):
    """Random colours on a coarse grid, interpolated, with some noise: needs no file."""
    position = np.linspace(0, 4, size)
    weights = np.maximum(0, 1 - np.abs(position[:, np.newaxis] - np.arange(5)))
    grid = rng.uniform(0, 240, (num_images, 5, 5, 3))
    images = np.einsum("yi,xj,nijc->nyxc", weights, weights, grid, optimize=True)
    return (images + rng.uniform(0, 16, images.shape)).astype(np.uint8)


def on_one_core(dataset):
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False  # no work ahead, in the time of another
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    return iter(dataset.with_options(options))


def create_batched(images):
    dataset = tf.data.Dataset.from_tensors(images).repeat().enumerate()
    return on_one_core(dataset.map(lambda step, batch: randaugment(batch, [0, step])))


def create_official(images):
    # It always applies its operations unless told otherwise; the same probability makes it the same amount of work.
    distort = official_augment.RandAugment(2, MAGNITUDE, prob_to_apply=FIRE_PROBABILITY).distort
    return on_one_core(tf.data.Dataset.from_tensor_slices(images).repeat().map(distort).batch(len(images)))


def create_pillow(images):
    rng = np.random.default_rng(1)
    while True:
        yield pillow_reference.apply_policies(images, draw_policies(*images.shape[:3], rng))


def create_op_cases(images):
    """Levels, signs and centres for `images`."""
    numbers = np.arange(len(images))
    centers = np.random.default_rng(2).integers(images.shape[1:3], size=(len(images), 2))
    return numbers % 9 + 1, numbers % 2 == 0, centers


def create_batched_op(images, name):
    dataset = tf.data.Dataset.from_tensors((images, *create_op_cases(images))).repeat()
    return on_one_core(dataset.map(lambda images, *cases: apply_op(images, name, *cases)))


def create_pillow_op(images, name):
    cases = list(zip(images, *(array.tolist() for array in create_op_cases(images))))
    scale = min(images.shape[1:3]) / REFERENCE_SIZE
    while True:
        yield np.stack([pillow_reference.apply_op(image, name, *case, scale) for image, *case in cases])


def measure(iterators, num_images, num_rounds):
    """Alternates the iterators; returns the median images per second of processor time of each.

    Not of elapsed time, because other work on the machine would fall upon one of them by chance.
    """
    seconds = [[] for _ in iterators]
    for iterator in iterators:
        next(iterator)  # traces
    for _ in range(num_rounds):
        for iterator, durations in zip(iterators, seconds):
            start = time.process_time()
            next(iterator)
            durations.append(time.process_time() - start)
    return [num_images / np.median(durations) for durations in seconds]


def compare_pipelines(num_rounds):
    print(f"{'RandAugment, images/s':24}{'batched':>10}{'official':>10}{'Pillow':>10}{'/official':>11}{'/Pillow':>9}")
    for size, batch_size in BATCHES.items():
        images = create_smooth_images(batch_size, size, np.random.default_rng(0))
        iterators = [create(images) for create in (create_batched, create_official, create_pillow)]
        speed, official, pillow = measure(iterators, batch_size, num_rounds)
        ratios = f"{speed / official:11.1f}{speed / pillow:9.1f}"
        print(f"{f'{size}×{size}, {batch_size} a batch':24}{speed:10,.0f}{official:10,.0f}{pillow:10,.0f}{ratios}")


def compare_ops(num_rounds):
    """One operation at a time, on about as many images as draw it in a batch; a jump in ns/pixel would be a cliff."""
    for size, batch_size in BATCHES.items():
        num_images = max(2, batch_size // len(OPS))
        images = image_ops.add_alpha(create_smooth_images(num_images, size, np.random.default_rng(0)))
        title = f"{size}×{size}, {num_images} images"
        print(f"\n{title:24}{'batched/s':>10}{'Pillow/s':>10}{'ratio':>8}{'ns/pixel':>10}")
        for name in OPS:
            iterators = [create_batched_op(images, name), create_pillow_op(images, name)]
            speed, pillow = measure(iterators, num_images, num_rounds)
            print(f"{name:24}{speed:10,.0f}{pillow:10,.0f}{speed / pillow:8.1f}{1e9 / speed / size**2:10.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_rounds", type=int, default=15)
    flags = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    compare_pipelines(flags.num_rounds)
    compare_ops(flags.num_rounds * 3)


if __name__ == "__main__":
    main()
