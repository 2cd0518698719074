"""Cost of the UDA step per image, beside a plain supervised Keras step of the same network on as many images.

    python -m tests.benchmarks.uda_step [--batch_size=8] [--wrn_depth=28] [--wrn_stem_stride=1]
    python -m tests.benchmarks.uda_step --mixed_precision=bfloat16       # the same step in 16 bits beside it
    python -m tests.benchmarks.uda_step --peer_python=OTHER/bin/python

OTHER is an environment with PyTorch 2, which makes the same step in turn, channels last. Both use --num_threads. Times
are of the processor, all threads together, so that other work on the machine counts little; beside them are those that
passed.
"""

import argparse
import dataclasses
import os
import subprocess
import time

import numpy as np
import tensorflow as tf

from image.config import Config
from image.datasets import cifar10
from image.models import create_network
from image.train import create_model, create_optimizer

PEER = os.path.join(os.path.dirname(__file__), "peer_torch.py")


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
    """One step through Keras' own training function, as `fit` runs it, and its times: of the processor, and passed."""
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    train_function = model.make_train_function()

    def step():
        processor, passed = time.process_time(), time.perf_counter()
        tf.nest.map_structure(np.asarray, train_function(iterator))
        return time.process_time() - processor, time.perf_counter() - passed

    return step


def create_torch_step(python, config, num_threads):
    """The same step by PyTorch in a process of its own, and its times."""
    sizes = config.train_batch_size, config.unsup_ratio, config.wrn_depth, config.wrn_size, config.wrn_stem_stride
    command = [python, PEER, *map(str, (num_threads, *sizes))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def step():
        print(file=process.stdin, flush=True)
        answer = process.stdout.readline()
        if not answer:
            raise SystemExit(f"PyTorch ended with {process.wait()}")
        return tuple(map(float, answer.split()))

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--unsup_ratio", type=int, default=7)
    parser.add_argument("--wrn_depth", type=int, default=28)
    parser.add_argument("--wrn_stem_stride", type=int, default=1)
    parser.add_argument("--num_rounds", type=int, default=15)
    parser.add_argument("--num_threads", type=int, default=2)
    parser.add_argument("--mixed_precision", default="", help="bfloat16 or float16: adds the same step in 16 bits")
    parser.add_argument("--peer_python", default="", help="the Python of OTHER")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.num_threads)
    settings = {name: getattr(arguments, name) for name in ("unsup_ratio", "wrn_depth", "wrn_stem_stride")}
    config = Config(train_batch_size=arguments.batch_size, **settings)
    rng = np.random.default_rng(0)
    steps = {"UDA": create_uda_step(config, rng), "plain": create_plain_step(config, rng)}
    if arguments.mixed_precision:
        in_16_bits = dataclasses.replace(config, mixed_precision=arguments.mixed_precision)
        steps[arguments.mixed_precision] = create_uda_step(in_16_bits, rng)
    if arguments.peer_python:
        steps["PyTorch"] = create_torch_step(arguments.peer_python, config, arguments.num_threads)
    rounds = [[step() for step in steps.values()] for _ in range(arguments.num_rounds + 2)]
    times = np.array(rounds[2:])  # [rounds, steps, 2]; the first two rounds trace and warm up
    for name, (processor, passed) in zip(steps, np.median(times, axis=0) * 1000 / config.examples_per_step):
        print(f"{name:8} step: {processor:7.3f} ms of the processor per image, {passed:7.3f} ms passed")
    for number, name in list(enumerate(steps))[1:]:
        processor, passed = np.median(times[:, 0] / times[:, number], axis=0)
        print(f"UDA / {name}: {processor:.3f} of the processor's time, {passed:.3f} of the time that passed", end="")
        print(f" (medians of {len(times)} pairs)")


if __name__ == "__main__":
    main()
