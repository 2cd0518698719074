"""The texts of scripts/quickstart_text.sh: which of four collections does a sentence or tweet come from?

    python -m text.quickstart_data --archive=vaderSentiment-3.3.2.tar.gz --output_dir=data/raw/sources

The collections, film reviews, product reviews, newspaper editorials and tweets, are those of Hutto and Gilbert (ICWSM
2014), MIT licence, in the source archive of the Python package vaderSentiment.
"""

import csv
import io
import os
import tarfile

import numpy as np
from absl import flags

from utils import cli, files

FLAGS = flags.FLAGS
INNER_ARCHIVE = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
COLLECTIONS = {"film": "movieReviewSnippets", "product": "amazonReviewSnippets", "editorial": "nytEditorialSnippets"}
COLLECTIONS |= {"tweet": "tweets"}
NUM_PER_CLASS, NUM_TEST_PER_CLASS = 3500, 500  # as many of each: the smallest collection has some 3,700


def read_collections(archive):
    """Returns a dict from label to the texts of that collection, in their order."""
    try:
        with tarfile.open(archive) as outer, tarfile.open(fileobj=outer.extractfile(INNER_ARCHIVE)) as inner:
            contents = {
                label: inner.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt").read().decode("utf-8", "replace")
                for label, name in COLLECTIONS.items()
            }
    except (OSError, KeyError, tarfile.TarError) as error:
        raise ValueError(f"archive={archive} is not the source archive of vaderSentiment 3.3.2 ({error}).") from error
    # Each line is: number, sentiment, text.
    return {label: [line.split("\t")[2] for line in io.StringIO(content)] for label, content in contents.items()}


def write_splits(collections, output_dir):
    """Writes train.csv and test.csv with columns text and label, in a random order that is always the same."""
    rng = np.random.default_rng(0)
    splits = {"train": [], "test": []}
    for label, texts in collections.items():
        rows = [(texts[position].strip(), label) for position in rng.permutation(len(texts))[:NUM_PER_CLASS]]
        splits["test"] += rows[:NUM_TEST_PER_CLASS]
        splits["train"] += rows[NUM_TEST_PER_CLASS:]
    os.makedirs(output_dir, exist_ok=True)
    for split, rows in splits.items():
        with files.replacing(os.path.join(output_dir, f"{split}.csv")) as file:
            csv.writer(file).writerows(
                [("text", "label"), *(rows[position] for position in rng.permutation(len(rows)))]
            )


def define_flags():
    flags.DEFINE_string("archive", None, "vaderSentiment-3.3.2.tar.gz.", required=True)
    flags.DEFINE_string("output_dir", "data/raw/sources", "Where train.csv and test.csv go.")


def main():
    write_splits(read_collections(FLAGS.archive), FLAGS.output_dir)
    print(f"{FLAGS.output_dir}: train.csv and test.csv")


if __name__ == "__main__":
    cli.run(main, define_flags)
