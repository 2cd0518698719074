"""How long it takes to build a network and make the first step: as it is, and with AutoGraph, which utils/tracing.py
keeps out.

    python -m tests.benchmarks.first_step [--num_rounds=3]

Nearly all of it is tracing. Each is measured in a process of its own, in turn, since AutoGraph remembers what it has
converted. Times are of the processor.
"""

import argparse
import subprocess
import sys
import time

import numpy as np

WAYS = ("as written", "with AutoGraph")
NETWORKS = ("WRN-28-2", "BERT, 6 layers")


def create(name):
    """A network and a batch of two labelled and two unlabelled examples."""
    from image.datasets import cifar10
    from image.models.wide_resnet import create_wide_resnet
    from text.models.bert import BertConfig, create_bert

    if name == "WRN-28-2":
        features, network = np.zeros([2, 32, 32, 4], np.uint8), lambda: create_wide_resnet(cifar10.FACTS, 28, 32)
    else:
        size = BertConfig(1000, 64, num_hidden_layers=6, num_attention_heads=4, intermediate_size=128)
        features = {key: np.ones([2, 16], np.int32) for key in ("ids", "type_ids")}
        network = lambda: create_bert(size, 10, 16)  # noqa: E731
    return network, {"sup": features, "label": np.zeros(2, np.int64), "original": features, "augmented": features}


def measure(name, way):
    """Seconds of the network and the first step; what comes before them is not counted."""
    import tensorflow as tf

    from text.models.bert import Encoder
    from utils.settings import ObjectiveConfig
    from utils.uda_model import UDAModel

    class Converted(UDAModel):
        train_step = UDAModel.train_step.__wrapped__

    create_network, batch = create(name)
    model_class = UDAModel
    if way == "with AutoGraph":
        model_class, Encoder._call = Converted, Encoder._call.__wrapped__
    start = time.process_time()
    model = model_class(create_network, 10, ObjectiveConfig(train_steps=10), joint_pass=name.startswith("WRN"))
    model.compile(tf.keras.optimizers.SGD(0.1))
    model.optimizer.build(model.network.trainable_variables)
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    model.make_train_function()(iterator)
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=2, help="a network and a way; for the processes")
    arguments = parser.parse_args()
    if arguments.measure:
        print(measure(*arguments.measure))
        return
    for name in NETWORKS:
        seconds = {way: [] for way in WAYS}
        for _ in range(arguments.num_rounds):
            for way in WAYS:
                command = [sys.executable, "-m", "tests.benchmarks.first_step", "--measure", name, way]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                seconds[way].append(float(done.stdout.split()[-1]))
        written, converted = (np.median(seconds[way]) for way in WAYS)
        print(f"{name}: {written:.1f} s as written, {converted:.1f} s with AutoGraph: {converted / written:.1f} times")


if __name__ == "__main__":
    main()
