"""Images per second of the input pipeline alone, beside what a WRN-28-2 step consumes on this machine.

python -m tests.benchmarks.input_pipeline [--shuffle_buffer=20000]     (smaller than the data: streams from files)
"""

import argparse
import tempfile
import time

import numpy as np
import tensorflow as tf

from image import input_pipeline, preprocess, record_format
from image.config import Config
from image.datasets import DATASETS
from image.train import create_model, create_optimizer
from tests.benchmarks.randaugment import create_smooth_images, seconds
from utils.training import examples_per_step

NUM_IMAGES, NUM_COPIES = 10_000, 4


def write_records(data_dir):
    facts = DATASETS["cifar10"]
    images = create_smooth_images(NUM_IMAGES, np.random.default_rng(0))
    arrays = {"train": (images, np.arange(NUM_IMAGES) % 10), "unlabelled": (images, None)}
    arrays["test"] = images[:100], np.arange(100) % 10
    draw = {"sup_size": 4000, "use_equal_split": False, "label_seed": -1, "dev_size": 0}
    plans = [
        *preprocess.plan_labelled(data_dir, facts, arrays["train"][1], draw, "crop_flip", 0, 0),
        *preprocess.plan_test(data_dir, 100),
        *preprocess.plan_unlabelled(data_dir, NUM_IMAGES, "randaugment", NUM_COPIES, 0),
    ]
    record_format.write_facts(data_dir, facts)
    preprocess.write_sets(plans, lambda: arrays, facts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shuffle_buffer", type=int, default=20_000)
    parser.add_argument("--num_batches", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as data_dir:
        write_records(data_dir)
        config = Config(data_dir=data_dir, aug_copy=NUM_COPIES, shuffle_buffer=arguments.shuffle_buffer)
        data = input_pipeline.open_data(config)
        batches = iter(input_pipeline.create_train_dataset(config, data).prefetch(tf.data.AUTOTUNE))
        batch = next(batches)  # fills the shuffle buffer
        start = time.perf_counter()
        for _ in range(arguments.num_batches):
            next(batches)
        input_speed = arguments.num_batches * examples_per_step(config) / (time.perf_counter() - start)

        model = create_model(config, data.facts)
        model.compile(create_optimizer(config))
        eighth = {key: value[: len(value) // 8] for key, value in batch.items()}
        step = tf.function(lambda: model.train_step(eighth))
        step()
        step_speed = examples_per_step(config) / 8 / min(seconds(step)[0] for _ in range(5))
    print(f"input pipeline:  {input_speed:10,.0f} images/s")
    print(f"WRN-28-2 step:   {step_speed:10,.0f} images/s")
    print(f"ratio:           {input_speed / step_speed:10,.0f}")


if __name__ == "__main__":
    main()
