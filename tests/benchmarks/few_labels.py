"""Accuracy and minutes from few labels, beside SetFit with the same encoder, labels and test texts.

    python -m tests.benchmarks.few_labels --train_file=train.csv --test_file=test.csv --peer_python=OTHER/bin/python \\
      --work_dir=FOLDER [--unlabeled_file=more.csv] [--max_seq_length=40] [--draws 0 1 2 3 4]

OTHER is an environment with setfit; the files have the columns text and label. Here a draw is `text.preprocess` and
`text.main --recipe=frozen`, with everything that the programs do, the start of Python included; the features that one
draw has computed are there for the next. Of SetFit, only its own training and prediction count.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np

from text import datasets, encoders
from text.config import PreprocessConfig
from utils import files

ENCODER = "e5-small"
PEER = os.path.join(os.path.dirname(__file__), "peer_setfit.py")


def run_uda(config, model_dir):
    """Accuracy and minutes of one draw."""
    start, result = time.time(), os.path.join(model_dir, "result.json")
    shared = {name: getattr(config, name) for name in ("data_dir", "sup_size", "label_seed", "max_seq_length")}
    flags = ["--recipe=frozen", "--task_name=csv", f"--init_checkpoint={ENCODER}"]
    flags += [f"--{name}={value}" for name, value in shared.items()]
    sources = {name: getattr(config, name) for name in ("train_file", "unlabeled_file", "test_file")}
    sources = [f"--{name}={value}" for name, value in sources.items() if value]
    keep = [] if config.trunc_keep_right else ["--notrunc_keep_right"]
    for program in (["text.preprocess", *flags, *sources, *keep], ["text.main", "--do_train", "--do_eval", *flags]):
        more = [f"--model_dir={model_dir}", f"--seed={config.label_seed}"] if program[0] == "text.main" else []
        subprocess.run([sys.executable, "-m", *program, *more], check=True, stdout=subprocess.DEVNULL)
    return 100 * files.read_json(result)["accuracy"], (time.time() - start) / 60


def write_texts(config, path):
    """The labelled and the test texts of a draw, for SetFit."""
    source = datasets.open_source(config)
    name = f"sup-size_{config.sup_size}-seed_{config.label_seed}"
    chosen = files.read_json(os.path.join(config.data_dir, name, "train", "info.json"))["settings"]["indices"]
    train, test = list(source.read("train")), list(source.read("test"))
    parts = {"train": ([train[row] for row in chosen], source.labels("train")[chosen])}
    parts |= {"test": (test, source.labels("test"))}
    content = {f"{part}_texts": [example.text for example in examples] for part, (examples, _) in parts.items()}
    content |= {f"{part}_labels": labels.tolist() for part, (_, labels) in parts.items()}
    files.write_json(path, content)


def run_setfit(config, peer_python, folder):
    path = os.path.join(folder, "texts.json")
    write_texts(config, path)
    cut = "left" if config.trunc_keep_right else "right"
    options = map(str, (config.max_seq_length, cut, config.label_seed))
    command = [peer_python, PEER, encoders.locate(ENCODER), path, *options]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = json.loads(output.splitlines()[-1])
    return 100 * result["accuracy"], result["train_minutes"] + result["test_minutes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--test_file", required=True)
    parser.add_argument("--unlabeled_file", default="")
    parser.add_argument("--work_dir", required=True, help="for records, features and runs")
    parser.add_argument("--peer_python", default="", help="the Python of OTHER; without it, UDA alone")
    parser.add_argument("--sup_size", type=int, default=20)
    parser.add_argument("--max_seq_length", type=int, default=40)
    parser.add_argument("--keep_beginning", action="store_true", help="of texts that are too long, not their end")
    parser.add_argument("--draws", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    flags = parser.parse_args()
    sources = {name: getattr(flags, name) for name in ("train_file", "unlabeled_file", "test_file")}
    sources |= {"sup_size": flags.sup_size, "max_seq_length": flags.max_seq_length}
    rows = []
    for draw in flags.draws:
        config = PreprocessConfig(
            task_name="csv",
            init_checkpoint=ENCODER,
            data_dir=os.path.join(flags.work_dir, "records"),
            trunc_keep_right=not flags.keep_beginning,
            label_seed=draw,
            **sources,
        )
        figures = run_uda(config, os.path.join(flags.work_dir, f"run_{draw}"))
        if flags.peer_python:
            figures += run_setfit(config, flags.peer_python, flags.work_dir)
        rows.append(figures)
        print(f"draw {draw}: " + describe(figures), flush=True)
    means, deviations = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) if len(rows) > 1 else np.zeros(4)
    print(
        "mean: " + describe(means) + ", deviations of the accuracies: " + ", ".join(f"{d:.1f}" for d in deviations[::2])
    )


def describe(figures):
    names = ("UDA", "SetFit")
    pairs = zip(names, figures[::2], figures[1::2])
    return ", ".join(f"{name} {accuracy:.1f} % in {minutes:.1f} minutes" for name, accuracy, minutes in pairs)


if __name__ == "__main__":
    main()
