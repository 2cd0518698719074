"""The part of IMDb that small experiments use: the reviews of a list of names, in its order.

    bash scripts/download_imdb.sh
    python -m text.imdb_part

The list, results/imdb_part.txt, has names such as train/unsup/19936_0.txt: 2,000 labelled reviews, the original
release's 20 first, 8,000 unlabelled ones and 2,000 for the test. Writes train, unlabeled (the first 3,000),
unlabeled_8000 and test, each .jsonl.gz, with the columns id, label (1 praise, 0 blame, -1 not known) and text.
"""

import dataclasses
import gzip
import json
import os

from absl import flags

from text.config import SourceConfig
from text.datasets import imdb
from text.datasets.lines import read_lines
from utils import cli, files

FLAGS = flags.FLAGS
LABELS = {"neg": 0, "pos": 1, "unsup": -1}
NUM_UNLABELED = {"unlabeled": 3000, "unlabeled_8000": 8000}  # at most


def read_names(path):
    """A dict from the name of a file to the names of its reviews, in their order."""
    names = [line.strip() for line in read_lines(path)]
    parts = {"train": ("train/neg", "train/pos"), "unlabeled": ("train/unsup",), "test": ("test/neg", "test/pos")}
    splits = {split: [] for split in parts}
    for number, name in enumerate(names, start=1):
        split = next((split for split in parts if name.rpartition("/")[0] in parts[split]), None)
        if split is None or not imdb.order(name):
            raise ValueError(f"{path}, line {number}: {files.shorten(name)}: expected one like train/pos/9716_10.txt.")
        splits[split].append(name)
    unlabeled = {file: splits["unlabeled"][:number] for file, number in NUM_UNLABELED.items()}
    return {"train": splits["train"], **unlabeled, "test": splits["test"]}


def read_texts(path, md5, names):
    """A dict from name to text, of all `names`."""
    facts = dataclasses.replace(imdb.FACTS, min_unsup_length=0)  # the list has short ones, too
    found = {}
    for split in ("test", "unlabeled"):  # the latter has the labelled ones, too
        found |= {name: text for name, text, *_ in imdb.read_reviews(facts, path, md5, split) if name in names}
    if missing := sorted(names - found.keys(), key=imdb.order):
        lacks = f"{len(missing):,} of the {len(names):,} reviews, such as {missing[0]}"
        raise ValueError(f"{path} lacks {lacks}. Remove it and {imdb.FACTS.how_to_get}")
    return found


def write_part(output_dir, names_of_files, texts):
    files.make_folder(output_dir)
    for file, names in names_of_files.items():
        records = [{"id": name, "label": LABELS[name.split("/")[1]], "text": texts[name]} for name in names]
        content = "".join(json.dumps(record) + "\n" for record in records).encode()
        with files.replacing(os.path.join(output_dir, f"{file}.jsonl.gz"), "wb") as stored:
            stored.write(gzip.compress(content, mtime=0))


def define_flags():
    flags.DEFINE_string("raw_data_dir", "data/raw/imdb", "Folder with aclImdb or its archive.")
    flags.DEFINE_string("names", "results/imdb_part.txt", "The list, one name a line.")
    flags.DEFINE_string("output_dir", "data/raw/imdb_part", "Where the four files go.")


def main():
    names_of_files = read_names(FLAGS.names)
    path, md5 = imdb.find_reviews(SourceConfig(raw_data_dir=FLAGS.raw_data_dir))
    texts = read_texts(path, md5, {name for names in names_of_files.values() for name in names})
    write_part(FLAGS.output_dir, names_of_files, texts)
    print(f"{FLAGS.output_dir}:", *(f"{file} {len(names):,}" for file, names in names_of_files.items()))


if __name__ == "__main__":
    cli.run(main, define_flags)
