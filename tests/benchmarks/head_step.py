"""Speed of UDA on features: steps of 20 labelled and 100 unlabelled examples, beside the same step written in NumPy.

    python -m tests.benchmarks.head_step [--width=384] [--num_classes=2] [--num_rounds=8]

Both are run in turn, in one thread. Times are of the processor and include the choice of the batches, so that other
work on the machine counts little.
"""

import argparse
import itertools
import time

import numpy as np
import tensorflow as tf

from utils import features, training
from utils.features import FeatureData, HeadConfig, Labelled
from utils.optimizers import create_bert_adamw
from utils.uda_model import UDAModel

CONFIG = HeadConfig()
STEPS_PER_CALL = training.steps_per_call(CONFIG)


def create_data(width, num_classes, rng, num_unlabelled=5000):
    labels = (np.arange(CONFIG.train_batch_size) % num_classes).astype(np.int64)
    sup = Labelled(rng.normal(size=[len(labels), width]).astype(np.float16), labels)
    original = rng.normal(size=[num_unlabelled, width]).astype(np.float16)
    augmented = original + rng.normal(scale=0.3, size=original.shape).astype(np.float16)
    return FeatureData(tuple(range(num_classes)), sup, original=original, augmented=augmented)


def create_trainer(data):
    """A function that makes STEPS_PER_CALL steps of this code."""
    statistics, num_classes = features.compute_statistics(data.original), len(data.class_names)
    model = UDAModel(lambda: features.create_head(data.width, num_classes, statistics), num_classes, CONFIG)
    training.compile_model(model, create_bert_adamw(CONFIG, bias_correction=CONFIG.bias_correction), CONFIG)
    make_steps = training.create_steps(model, STEPS_PER_CALL)
    iterator = iter(features.create_train_dataset(CONFIG, data))
    return lambda: tf.nest.map_structure(np.asarray, make_steps(iterator))


# ---- NumPy ----------------------------------------------------------------------------------------------------------


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def create_numpy_trainer(data, rng):
    """A function that makes as many steps: sharpened targets, cross-entropy, Adam with bias correction."""
    mean, deviation = features.compute_statistics(data.original)
    weights = np.zeros([data.width + 1, len(data.class_names)], np.float32)  # the last row is the bias
    first, second, steps = np.zeros_like(weights), np.zeros_like(weights), itertools.count(1)
    one_hot = np.eye(len(data.class_names), dtype=np.float32)[data.sup.labels]

    def take(values, rows):
        return np.pad((values[rows].astype(np.float32) - mean) / deviation, [(0, 0), (0, 1)], constant_values=1)

    def gradient():
        rows = rng.integers(len(data.original), size=CONFIG.train_batch_size * CONFIG.unsup_ratio)
        order = rng.permutation(len(one_hot))
        sup, original, augmented = take(data.sup.features, order), take(data.original, rows), take(data.augmented, rows)
        target = softmax(original @ weights / CONFIG.uda_softmax_temp)
        unsup = augmented.T @ (softmax(augmented @ weights) - target) / len(rows)
        return sup.T @ (softmax(sup @ weights) - one_hot[order]) / len(order) + CONFIG.unsup_coeff * unsup

    def make_steps():
        for step in itertools.islice(steps, STEPS_PER_CALL):
            change = gradient()
            first[:] = 0.9 * first + 0.1 * change
            second[:] = 0.999 * second + 0.001 * change**2
            rate = CONFIG.learning_rate * max(1 - step / CONFIG.train_steps, 0)
            weights[:] -= rate * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-6)

    return make_steps


def cpu_seconds(function):
    start = time.process_time()
    function()
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--num_classes", type=int, default=2)
    parser.add_argument("--num_rounds", type=int, default=8)
    flags = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rng = np.random.default_rng(0)
    data = create_data(flags.width, flags.num_classes, rng)
    trainers = [create_trainer(data), create_numpy_trainer(data, rng)]
    times = [[cpu_seconds(trainer) for trainer in trainers] for _ in range(flags.num_rounds + 1)][1:]
    ours, numpy_speed = STEPS_PER_CALL / np.median(times, axis=0)
    ratio = np.median([theirs / ours for ours, theirs in times])
    print(f"{ours:,.0f} steps per second of a core, NumPy {numpy_speed:,.0f}, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
