"""The texts of scripts/quickstart_text.sh, from the source archive of the Python package vaderSentiment.

    python -m text.quickstart_data --archive=vaderSentiment-3.3.2.tar.gz --task=film --output_dir=data/raw/film

Four collections of sentences and tweets with the scores, from -4 to 4, that people gave to their sentiment (Hutto and
Gilbert, ICWSM 2014, MIT licence). `film`: is a sentence of a film review praise or blame? `collections`: is a text from
film reviews, product reviews, newspaper editorials or tweets?
"""

import contextlib
import csv
import io
import os
import tarfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from absl import flags

from utils import cli, files

FLAGS = flags.FLAGS
INNER_ARCHIVE = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
COLLECTIONS = {"film": "movieReviewSnippets", "product": "amazonReviewSnippets", "editorial": "nytEditorialSnippets"}
COLLECTIONS |= {"tweet": "tweets"}
CLEAR_SCORE = 0.5  # below it, on either side of 0, a sentence is neither praise nor blame, and is left out


class Task(NamedTuple):
    choose: Callable  # from read_collections' dict to one from label to texts
    num_per_class: int
    num_test_per_class: int


def by_collection(collections):
    return {label: [text for _, text in rows] for label, rows in collections.items()}


def by_sentiment(collections):
    rows = collections["film"]
    return {
        "negative": [text for score, text in rows if score <= -CLEAR_SCORE],
        "positive": [text for score, text in rows if score >= CLEAR_SCORE],
    }


TASKS = {"film": Task(by_sentiment, 3400, 1000), "collections": Task(by_collection, 3500, 500)}


def read_collections(archive):
    """Returns a dict from label to (score, text) of that collection, in their order."""
    try:
        with contextlib.ExitStack() as stack:
            outer = stack.enter_context(tarfile.open(fileobj=stack.enter_context(files.open_file(archive, "rb"))))
            inner = stack.enter_context(tarfile.open(fileobj=outer.extractfile(INNER_ARCHIVE)))
            contents = {
                label: inner.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt").read().decode("utf-8", "replace")
                for label, name in COLLECTIONS.items()
            }
    except (OSError, KeyError, tarfile.TarError) as error:
        raise ValueError(f"archive={archive} is not the source archive of vaderSentiment 3.3.2 ({error}).") from error
    # Each line is: number, sentiment, text.
    lines = {label: [line.split("\t") for line in io.StringIO(content)] for label, content in contents.items()}
    return {label: [(float(line[1]), line[2]) for line in rows] for label, rows in lines.items()}


def write_splits(texts_of_classes, task, output_dir):
    """Writes train.csv and test.csv with columns text and label, in a random order that is always the same."""
    rng = np.random.default_rng(0)
    splits = {"train": [], "test": []}
    for label, texts in texts_of_classes.items():
        rows = [(texts[position].strip(), label) for position in rng.permutation(len(texts))[: task.num_per_class]]
        splits["test"] += rows[: task.num_test_per_class]
        splits["train"] += rows[task.num_test_per_class :]
    files.make_folder(output_dir)
    for split, rows in splits.items():
        with files.replacing(os.path.join(output_dir, f"{split}.csv")) as file:
            csv.writer(file).writerows(
                [("text", "label"), *(rows[position] for position in rng.permutation(len(rows)))]
            )


def define_flags():
    flags.DEFINE_string("archive", None, "vaderSentiment-3.3.2.tar.gz.", required=True)
    flags.DEFINE_enum("task", "film", list(TASKS), "What the classes are.")
    flags.DEFINE_string("output_dir", "", "Where train.csv and test.csv go; default data/raw/<task>.")


def main():
    task, output_dir = TASKS[FLAGS.task], FLAGS.output_dir or f"data/raw/{FLAGS.task}"
    write_splits(task.choose(read_collections(FLAGS.archive)), task, output_dir)
    print(f"{output_dir}: train.csv and test.csv")


if __name__ == "__main__":
    cli.run(main, define_flags)
