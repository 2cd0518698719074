"""Several workers: what the input of each costs, and two of them against one process with two threads.

python -m tests.benchmarks.workers [--only=input|steps]

Input is measured in processor time, of the input pipeline alone: it should fall as the number of workers grows. Steps
are measured by the clock, in turns, on a machine that should do nothing else.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

import text.config
from image import input_pipeline, preprocess
from image.config import Config
from image.datasets import Source, cifar10
from tests.benchmarks import text_input
from tests.benchmarks.randaugment import create_smooth_images
from text import input_pipeline as text_pipeline
from utils.record_stream import Share

ROOT = Path(__file__).parent.parent.parent
NUM_IMAGES, NUM_BATCHES = 2000, 30
COUNTS = (1, 2, 4)
IMAGE_RUN = {"sup_size": 200, "aug_copy": 1, "wrn_depth": 10, "wrn_size": 16, "train_batch_size": 32, "unsup_ratio": 3}


def write_images(data_dir):
    images = create_smooth_images(NUM_IMAGES, np.random.default_rng(0))
    arrays = {"train": (images, np.arange(NUM_IMAGES) % 10), "unlabeled": (images, None)}
    arrays["test"] = images[:100], np.arange(100) % 10
    for aug_mode in ("offline", "online"):
        config = Config(data_dir=data_dir, aug_mode=aug_mode, **IMAGE_RUN)
        preprocess.write_records(config, Source(cifar10.FACTS, lambda: arrays, {}), seed=0)


def create_pipelines(folder):
    """{what: function from a Share to a dataset}."""
    pipelines = {}
    for name, settings in {"images": {}, "images from files": {"shuffle_buffer": 100}, "online": {}}.items():
        settings = IMAGE_RUN | {"aug_mode": "online" if name == "online" else "offline"} | settings
        settings |= {"train_batch_size": 64, "unsup_ratio": 7}
        config = Config(data_dir=str(folder / "images"), **settings)
        data = input_pipeline.open_data(config)
        pipelines[name] = lambda share, config=config, data=data: input_pipeline.create_train_dataset(
            config, data, 0, share
        )
    text_input.NUM_TEXTS = 2000
    (folder / "texts").mkdir()
    records = text_input.write_records(str(folder / "texts"), max_seq_length=512)
    for name, shuffle_buffer in (("texts", 100_000), ("texts from files", 1000)):
        settings = {"model_name": "bag_of_words", "train_batch_size": 32, "unsup_ratio": 7} | records
        config = text.config.Config(shuffle_buffer=shuffle_buffer, **settings)
        data = text_pipeline.open_data(config)
        pipelines[name] = lambda share, config=config, data=data: text_pipeline.create_train_dataset(
            config, data, share=share
        )
    return pipelines


def processor_seconds(dataset):
    """Of a batch, once the pipeline is running."""
    batches = iter(dataset)
    next(batches)
    started = time.process_time()
    for _ in range(NUM_BATCHES):
        next(batches)
    return (time.process_time() - started) / NUM_BATCHES


def measure_input(folder):
    print("processor time of the input of one worker per global batch, in ms, and beside that of one process")
    for name, create in create_pipelines(folder).items():
        runs = [[processor_seconds(create(Share(0, count))) for count in COUNTS] for _ in range(3)]
        best = np.min(runs, axis=0)
        values = "   ".join(f"{count}: {1000 * s:7.2f} ({s / best[0]:.2f})" for count, s in zip(COUNTS, best))
        print(f"{name:20s} {values}", flush=True)


def steps_per_second(folder, num_workers, number):
    """Of a run whose first line of metrics, with the compilation of the step, does not count."""
    flags = IMAGE_RUN | {"data_dir": folder / "images", "model_dir": folder / f"run-{num_workers}-{number}"}
    flags |= {"train_steps": 20, "log_steps": 10, "save_steps": 20, "iterations": 10, "do_train": True}
    program = [sys.executable, "-m", "image.main", *(f"--{name}={value}" for name, value in flags.items())]
    threads = {"TF_NUM_INTRAOP_THREADS": str(2 // num_workers), "TF_NUM_INTEROP_THREADS": "2"}
    command = ["bash", "scripts/launch_workers.sh", str(num_workers)] if num_workers > 1 else []
    subprocess.run([*command, *program], cwd=ROOT, check=True, capture_output=True, env=os.environ | threads)
    last = json.loads((flags["model_dir"] / "metrics.jsonl").read_text().splitlines()[-1])
    return last["examples_per_second"] / (IMAGE_RUN["train_batch_size"] * (1 + 2 * IMAGE_RUN["unsup_ratio"]))


def measure_steps(folder, repetitions):
    speeds = {1: [], 2: []}
    for number in range(repetitions):
        for num_workers, values in speeds.items():
            values.append(steps_per_second(folder, num_workers, number))
        print(f"steps per second, one process {speeds[1][-1]:.2f}, two workers {speeds[2][-1]:.2f}", flush=True)
    print(f"two workers against one process with two threads: {max(speeds[2]) / max(speeds[1]):.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["input", "steps"])
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    tf.get_logger().setLevel("ERROR")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(str(folder / "images"))
        if arguments.only != "steps":
            measure_input(folder)
        if arguments.only != "input":
            measure_steps(folder, arguments.repetitions)


if __name__ == "__main__":
    main()
