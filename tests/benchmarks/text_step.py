"""Cost of the UDA step on texts: target outside of the gradient tape or inside; batches of similar length or padded.

python -m tests.benchmarks.text_step [--batch_size=4] [--length=64] [--num_rounds=8]

Times are of the processor, all threads together, so that other work on the machine counts little. What is compared is
run in turn. The network has the size of MiniLM (6 layers of width 384) and random weights.
"""

import argparse
import functools
import itertools
import os
import tempfile
import time

import numpy as np
import tensorflow as tf

from text import input_pipeline, record_format
from text.config import Config
from text.datasets.source import Facts
from text.models.bert import BertConfig, create_bert
from utils import records
from utils.optimizers import BertAdamW
from utils.settings import ObjectiveConfig
from utils.uda_model import UDAModel

VOCAB_SIZE, UNSUP_RATIO, MAX_LENGTH = 30522, 3, 128
MINILM = BertConfig(VOCAB_SIZE, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)


def create_model(joint_pass):
    create = functools.partial(create_bert, MINILM, 2, MAX_LENGTH)
    model = UDAModel(create, num_classes=2, objective=ObjectiveConfig(), joint_pass=joint_pass)
    model.compile(BertAdamW(1e-5))
    return model


def cpu_seconds(function):
    start = time.process_time()
    function()
    return time.process_time() - start


# ---- target inside and outside of the tape --------------------------------------------------------------------------


def create_batch(batch_size, length, rng):
    def create_features(num_texts):
        ids = rng.integers(1, VOCAB_SIZE, [num_texts, length]).astype(np.int32)
        return {"ids": ids, "type_ids": np.zeros_like(ids)}

    views = {view: create_features(UNSUP_RATIO * batch_size) for view in record_format.VIEWS}
    return views | {"sup": create_features(batch_size), "label": rng.integers(0, 2, batch_size)}


def create_step(model, batches):
    """One step through Keras' own training function, as `fit` runs it."""
    iterator, train_function = iter(batches), model.make_train_function()
    return lambda: tf.nest.map_structure(np.asarray, train_function(iterator))


def compare_passes(batch_size, length, num_rounds):
    batch = create_batch(batch_size, length, np.random.default_rng(0))
    batches = tf.data.Dataset.from_tensors(batch).repeat()
    steps = {joint_pass: create_step(create_model(joint_pass), batches) for joint_pass in (True, False)}
    times = [[cpu_seconds(steps[joint_pass]) for joint_pass in (True, False)] for _ in range(num_rounds + 1)][1:]
    joint, separate = np.median(times, axis=0)
    print(f"target inside the tape, one pass over all views: {joint:6.2f} s a step")
    print(f"target outside the tape, a pass for each view:   {separate:6.2f} s a step")
    ratios = [inside / outside for inside, outside in times]
    print(f"inside / outside: {np.median(ratios):.2f} (median of {num_rounds} pairs)")


# ---- batches of similar length and padded ones ----------------------------------------------------------------------


def write_set(set_dir, num_texts, settings, rng, augmented=False):
    """Texts as long as short reviews: half of them over 45 pieces, one in ten over 100."""
    lengths = np.clip(rng.lognormal(np.log(45), 0.6, num_texts), 8, MAX_LENGTH).astype(int)

    def create_texts():
        return [(rng.integers(1, VOCAB_SIZE, length).astype(np.int32), 0) for length in lengths]

    labels = None if augmented else np.arange(num_texts) % 2
    content = record_format.encode(create_texts(), range(num_texts), labels, create_texts() if augmented else None)
    records.begin_set(set_dir, settings)
    records.write_shard(set_dir, 0, 1, lambda: content)
    records.finish_set(set_dir, 1)


def write_records(data_dir, rng):
    vocab_path = os.path.join(data_dir, "empty.txt")
    open(vocab_path, "w").close()
    tokenization = record_format.Tokenization("", VOCAB_SIZE, True, MAX_LENGTH, True)
    record_format.write_dataset(data_dir, Facts("csv", ("bad", "good")), tokenization, vocab_path)
    write_set(os.path.join(data_dir, "sup-size_20/train"), 20, {}, rng)
    write_set(record_format.copy_dir(data_dir, "unif-0.1", 0), 4096, {"aug_op": "unif-0.1"}, rng, augmented=True)


def compare_lengths(batch_size, num_rounds):
    """A round is a window of the input pipeline: a batch of each length."""
    with tempfile.TemporaryDirectory() as data_dir:
        write_records(data_dir, np.random.default_rng(0))
        data_settings = {"task_name": "csv", "data_dir": data_dir, "aug_ops": "unif-0.1", "max_seq_length": MAX_LENGTH}
        batch_settings = {"train_batch_size": batch_size, "unsup_ratio": UNSUP_RATIO}
        config = Config(model_name="transformer", **data_settings, **batch_settings)
        create_batches = functools.partial(
            input_pipeline.create_train_dataset, config, input_pipeline.open_data(config)
        )
        model = create_model(joint_pass=False)
        steps = {fixed: create_step(model, create_batches(fixed_length=fixed)) for fixed in (True, False)}
        num_steps = 1 + num_rounds * input_pipeline.MAX_WINDOW
        times = np.array([[cpu_seconds(steps[fixed]) for fixed in (True, False)] for _ in range(num_steps)])[1:]
        lengths = [batch["original"]["ids"].shape[1] for batch in itertools.islice(create_batches(), 1, num_steps)]
    padded, similar = times.mean(axis=0)
    print(f"all texts padded to {MAX_LENGTH}:        {padded:6.2f} s a step")
    print(f"texts of similar length together: {similar:6.2f} s a step, of {np.mean(lengths):.0f} pieces on average")
    print(f"padded / similar length: {padded / similar:.2f} ({num_steps - 1} steps)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--num_rounds", type=int, default=8)
    parser.add_argument("--num_windows", type=int, default=1)
    arguments = parser.parse_args()
    compare_passes(arguments.batch_size, arguments.length, arguments.num_rounds)
    compare_lengths(arguments.batch_size, arguments.num_windows)


if __name__ == "__main__":
    main()
