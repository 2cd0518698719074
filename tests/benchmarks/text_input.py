"""What bucketing by length saves: share of padding and records per second of the bucketed and the fixed pipeline.

python -m tests.benchmarks.text_input [--max_seq_length=512] [--shuffle_buffer=5000]     (streams from files)
"""

import argparse
import os
import tempfile
import time

import numpy as np
import tensorflow as tf

from tests.benchmarks.text_preprocess import create_reviews, write_vocab
from text import input_pipeline, preprocess
from text.config import Config, PreprocessConfig
from text.datasets import lists

NUM_TEXTS = 10_000


def write_records(data_dir, max_seq_length):
    """Returns the settings that preprocessing and training share."""
    texts, words = create_reviews(NUM_TEXTS, np.random.default_rng(0))
    vocab_path = os.path.join(data_dir, "vocab.txt")
    write_vocab(vocab_path, words)
    source = lists.create_source("csv", ("bad", "good"), (texts, np.arange(NUM_TEXTS) % 2))
    settings = {"task_name": "csv", "data_dir": data_dir, "max_seq_length": max_seq_length, "aug_ops": "tf_idf-0.7"}
    preprocess.write_records(PreprocessConfig(vocab_file=vocab_path, workers=1, **settings), source)
    return settings


def measure(config, data, fixed_length, num_batches):
    """Returns the share of padding among the unlabelled pieces, records per second, and the number of shapes."""
    batches = iter(input_pipeline.create_train_dataset(config, data, fixed_length=fixed_length))
    next(batches)  # fills the shuffle buffer
    num_pieces, num_places, shapes, start = 0, 0, set(), time.perf_counter()
    for _ in range(num_batches):
        ids = next(batches)["original"]["ids"]
        num_pieces += int(tf.math.count_nonzero(ids))
        num_places += int(tf.size(ids))
        shapes.add(ids.shape[1])
    duration = time.perf_counter() - start
    return (
        1 - num_pieces / num_places,
        num_batches * config.train_batch_size * (1 + config.unsup_ratio) / duration,
        shapes,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_seq_length", type=int, default=512)
    parser.add_argument("--shuffle_buffer", type=int, default=100_000)
    parser.add_argument("--num_batches", type=int, default=320)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as data_dir:
        settings = write_records(data_dir, arguments.max_seq_length)
        config = Config(model_name="bag_of_words", shuffle_buffer=arguments.shuffle_buffer, **settings)
        data = input_pipeline.open_data(config)
        for name, fixed_length in (("bucketed", False), ("fixed", True)):
            padding, speed, shapes = measure(config, data, fixed_length, arguments.num_batches)
            print(f"{name:9}  {padding:6.1%} padding, {speed:8,.0f} records/s, {len(shapes)} lengths")


if __name__ == "__main__":
    main()
