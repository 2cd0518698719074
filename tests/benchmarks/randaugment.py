"""Speed of batched RandAugment against a loop over single images with Pillow, in one process, with equal results.

python -m tests.benchmarks.randaugment [--cifar_file=data_batch_1.bin] [--batch_size=4096]
"""

import argparse
import time

import numpy as np

from augmentation import image_ops
from augmentation.randaugment import OPS, draw_policies, randaugment
from tests import pillow_reference

LEVEL = 7


def create_smooth_images(num_images, rng):
    """Random colours on a coarse grid, interpolated to 32×32: smooth as photographs, and needs no file."""
    position = np.linspace(0, 4, 32)
    weights = np.maximum(0, 1 - np.abs(position[:, np.newaxis] - np.arange(5)))
    grid = rng.uniform(0, 256, (num_images, 5, 5, 3))
    images = np.einsum("yi,xj,nijc->nyxc", weights, weights, grid, optimize=True)
    return images.astype(np.uint8, order="C")


def read_cifar_images(path, num_images):
    rows = np.fromfile(path, np.uint8, count=num_images * 3073).reshape(-1, 3073)
    return np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def seconds(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def compare(num_images, num_rounds, with_pillow, batched):
    """Alternates the two functions; returns their median images per second and whether their results are equal."""
    pillow_seconds, batched_seconds, equal = [], [], True
    for _ in range(num_rounds):
        duration, expected = seconds(with_pillow)
        pillow_seconds.append(duration)
        duration, result = seconds(batched)
        batched_seconds.append(duration)
        equal = equal and np.array_equal(expected, result)
    return num_images / np.median(pillow_seconds), num_images / np.median(batched_seconds), equal


def print_row(name, pillow_speed, batched_speed, equal):
    ratio = batched_speed / pillow_speed
    print(f"{name:14}{pillow_speed:12,.0f}{batched_speed:14,.0f}{ratio:8.1f}  {'equal' if equal else 'DIFFERENT'}")


def compare_pipelines(images, num_rounds):
    # Pillow gets its policies for nothing; the batched version draws them within its time.
    policies = draw_policies(*images.shape[:3], np.random.default_rng(1))
    return compare(
        len(images),
        num_rounds,
        lambda: pillow_reference.apply_policies(images, policies),
        lambda: randaugment(images, np.random.default_rng(1)),
    )


def compare_op(name, images, num_rounds):
    centers = np.random.default_rng(2).integers(32, size=(len(images), 2))
    arguments = [OPS[name].argument(LEVEL, 1)] if OPS[name].argument else []
    if name == "Cutout":
        arguments.append(centers)
    pairs = list(zip(images, centers.tolist()))
    return compare(
        len(images),
        num_rounds,
        lambda: np.stack([pillow_reference.apply_op(image, name, LEVEL, center=center) for image, center in pairs]),
        lambda: OPS[name].function(images, *arguments),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar_file", help="a CIFAR-10 binary batch; smooth random images if not given")
    parser.add_argument("--batch_size", type=int, default=4096, help="images per call")
    parser.add_argument("--num_rounds", type=int, default=7)
    flags = parser.parse_args()
    if flags.cifar_file:
        images = read_cifar_images(flags.cifar_file, flags.batch_size)
    else:
        images = create_smooth_images(flags.batch_size, np.random.default_rng(0))
    print(f"{'images/s':14}{'Pillow':>12}{'batched':>14}{'ratio':>8}  ({len(images)} images per call)")
    print_row("RandAugment", *compare_pipelines(images, flags.num_rounds))
    images = image_ops.add_alpha(images[:256])
    for name in OPS:
        print_row(name, *compare_op(name, images, flags.num_rounds))


if __name__ == "__main__":
    main()
