"""Speed of augmenting and writing records, against per-image Pillow without writing; two processes against one.

python -m tests.benchmarks.preprocess [--cifar_file=data_batch_1.bin] [--num_copies=10]
"""

import argparse
import glob
import os
import tempfile
from typing import NamedTuple

import numpy as np

from augmentation.randaugment import draw_policies
from image import preprocess
from image.config import DataConfig
from image.datasets import Source, cifar10
from tests import pillow_reference
from tests.benchmarks.randaugment import create_smooth_images, read_cifar_images, seconds


class Images(NamedTuple):
    """Reads images when called."""

    cifar_file: str

    def __call__(self):
        if self.cifar_file:
            images = read_cifar_images(self.cifar_file, 10_000)
        else:
            images = create_smooth_images(10_000, np.random.default_rng(0))
        return {"unlabeled": (images, None)}


def write_copies(cifar_file, num_copies, workers, **options):
    """Writes all copies. Returns records per second without the start of the processes, and bytes per record.

    Args:
      options: runner and beam_args of image.preprocess.write_records.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = DataConfig(data_dir=folder, aug_copy=num_copies)
        source = Source(cifar10.FACTS, Images(cifar_file), {})
        preprocess.write_records(config, source, seed=0, workers=workers, **options)
        shards = [os.stat(path) for path in glob.glob(f"{folder}/**/*.tfrecord", recursive=True)]
    # From the first finished shard to the last: what the first wave of shards took is not counted, nor its records.
    shards.sort(key=lambda shard: shard.st_mtime)
    duration = shards[-1].st_mtime - shards[workers - 1].st_mtime
    num_bytes = sum(shard.st_size for shard in shards)
    counted = sum(shard.st_size for shard in shards[workers:]) / num_bytes * 10_000 * num_copies
    return counted / duration, num_bytes / (10_000 * num_copies)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cifar_file", default="", help="a binary CIFAR-10 batch; default smooth random images")
    parser.add_argument("--num_copies", type=int, default=10)
    parser.add_argument("--num_rounds", type=int, default=3)
    arguments = parser.parse_args()
    images = Images(arguments.cifar_file)()["unlabeled"][0][:2000]
    policies = draw_policies(*images.shape[:3], np.random.default_rng(1))
    speeds = {"pillow": [], 1: [], 2: []}
    for _ in range(arguments.num_rounds):
        duration, _ = seconds(lambda: pillow_reference.apply_policies(images, policies))
        speeds["pillow"].append(len(images) / duration)
        for workers in (1, 2):
            speed, record_bytes = write_copies(arguments.cifar_file, arguments.num_copies, workers)
            speeds[workers].append(speed)
    medians = {name: np.median(values) for name, values in speeds.items()}
    print(f"Pillow, no writing:            {medians['pillow']:8,.0f} images/s")
    print(
        f"augmented and written:         {medians[1]:8,.0f} images/s, {medians[1] / medians['pillow']:.1f} times Pillow"
    )
    print(
        f"with two processes:            {medians[2]:8,.0f} images/s, {medians[2] / medians[1]:.2f} times one process"
    )
    print(f"bytes per (original, augmented) pair: {record_bytes:,.0f}")


if __name__ == "__main__":
    main()
