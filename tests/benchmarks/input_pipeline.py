"""Images per second of the input pipeline alone, beside what a WRN-28-2 step consumes on this machine.

python -m tests.benchmarks.input_pipeline [--shuffle_buffer=20000]     (smaller than the data: streams from files)
"""

import argparse
import tempfile
import time

import numpy as np
import tensorflow as tf

from image import input_pipeline, preprocess
from image.config import Config
from image.datasets import Source, cifar10
from image.train import create_model, create_optimizer
from tests.benchmarks.randaugment import create_smooth_images, seconds

NUM_IMAGES, NUM_COPIES = 10_000, 4


def write_records(config):
    images = create_smooth_images(NUM_IMAGES, np.random.default_rng(0))
    arrays = {"train": (images, np.arange(NUM_IMAGES) % 10), "unlabeled": (images, None)}
    arrays["test"] = images[:100], np.arange(100) % 10
    preprocess.write_records(config, Source(cifar10.FACTS, lambda: arrays, {}), seed=0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shuffle_buffer", type=int, default=20_000)
    parser.add_argument("--num_batches", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as data_dir:
        config = Config(data_dir=data_dir, aug_copy=NUM_COPIES, shuffle_buffer=arguments.shuffle_buffer)
        write_records(config)
        data = input_pipeline.open_data(config)
        batches = iter(input_pipeline.create_train_dataset(config, data).prefetch(tf.data.AUTOTUNE))
        batch = next(batches)  # fills the shuffle buffer
        start = time.perf_counter()
        for _ in range(arguments.num_batches):
            next(batches)
        input_speed = arguments.num_batches * config.examples_per_step / (time.perf_counter() - start)

        model = create_model(config, data.facts)
        model.compile(create_optimizer(config))
        eighth = {key: value[: len(value) // 8] for key, value in batch.items()}
        step = tf.function(lambda: model.train_step(eighth))
        step()
        step_speed = config.examples_per_step / 8 / min(seconds(step)[0] for _ in range(5))
    print(f"input pipeline:  {input_speed:10,.0f} images/s")
    print(f"WRN-28-2 step:   {step_speed:10,.0f} images/s")
    print(f"ratio:           {input_speed / step_speed:10,.0f}")


if __name__ == "__main__":
    main()
