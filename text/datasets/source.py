"""What every text data set is read through: facts, examples, and the texts of which a set of records is made.

texts = find_texts(source, "test")                                # how many there are, and their checksum
for positions, examples in read_inputs(source, texts, shards=[0, 1]): ...
"""

import hashlib
import itertools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from utils import files, preprocessing


class Example(NamedTuple):
    key: str
    text: str  # cleaned
    title: str | None  # None in data sets without titles
    label: int  # -1 where there is none


@dataclass(frozen=True)
class Facts:
    """What is fixed about a data set."""

    name: str
    class_names: tuple[str, ...]
    has_title: bool = False
    train_size: int = 0  # 0: any number
    test_size: int = 0
    unsup_size: int = 0  # examples without a label that come with the training set
    min_unsup_length: int = 0  # shorter ones of them are left out, counted in characters
    labelled_ids: tuple[str, ...] = ()  # the published labelled subset, where there is one
    unlabeled_columns: tuple[str, ...] = ()  # text and title in the JSON lines of the external unlabelled set
    folder: str = ""  # what the official archive unpacks to
    how_to_get: str = ""

    @property
    def num_classes(self):
        return len(self.class_names)


LINK = re.compile(r"<a href=[^>]*>|<a href=|</a>")


def clean(text):
    """Takes out the markup that the official files carry; a literal backslash-n is how their CSV writes a new line."""
    text = text.replace("<br />", " ").replace("&quot;", '"').replace("<p>", " ")
    if "<a href=" in text:
        text = LINK.sub("", text)
    return text.replace("\\n", " ").replace("\\", " ").strip()


@dataclass(frozen=True)
class Source:
    """Where the examples of a data set come from. Small and picklable: it holds file names and no texts."""

    facts: Facts
    readers: dict  # split -> function without arguments: an iterator of Example, with None for each that is left out
    identify: Callable  # without arguments: JSON values that tell the unlabelled texts from others without reading them
    sizes: dict = field(default_factory=dict)  # split -> number of examples, those left out included, if it is fixed
    _labels: dict = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self):
        return self.__dict__ | {"_labels": {}}

    @property
    def splits(self):
        return tuple(self.readers)

    def read(self, split):
        """Yields the examples of "train", "test" or "unlabeled", always in the same order."""
        return (example for example in self.read_all(split) if example is not None)

    def labels(self, split):
        """Labels of all examples that read(split) yields, int64 [N]. Reads the files once."""
        if split not in self._labels:
            self._labels[split] = np.fromiter((example.label for example in self.read(split)), np.int64)
        return self._labels[split]

    def read_all(self, split):
        """As `read`, with None for each example that is left out."""
        if split not in self.readers:
            raise ValueError(f"split={split!r} does not exist: {self.facts.name} has {', '.join(self.readers)} here")
        return self._checked(split)

    def _checked(self, split):
        """Yields what the reader yields, and refuses a number of examples that is not the official one."""
        total = used = 0
        for example in self.readers[split]():
            total += 1
            used += example is not None
            yield example
        if not used:
            raise ValueError(f"{self.facts.name} has no {split} examples: its files hold no text")
        if total != self.sizes.get(split, total):
            raise ValueError(
                f"The {split} files of {self.facts.name} hold {total} examples, but the official ones "
                f"{self.sizes[split]}. Remove them and {self.facts.how_to_get}; allow_partial takes what there is"
            )


# ---- files ----------------------------------------------------------------------------------------------------------


def find_raw(config, facts, *names):
    """The first of these paths that exists in the raw_data_dir of config, a text.config.SourceConfig."""
    folder = config.raw_data_dir or f"data/raw/{config.task_name}"
    paths = [os.path.join(folder, name) for name in names]
    for path in paths:
        if files.exists(path):
            return path
    looked_for = " or ".join(paths)
    raise ValueError(
        f"No {facts.name} in raw_data_dir={str(folder)!r}: looked for {looked_for}. To get it, {facts.how_to_get}"
    )


def describe_files(*paths):
    """Path, size and time of change of each file, and of all files in a folder: for Source.identify."""
    found = []
    for path in map(files.absolute, paths):
        inside = [os.path.join(folder, name) for folder, _, names in files.walk(path) for name in names]
        found += [(file, *files.status(file)) for file in sorted(inside) or [path]]
    return found


# ---- the texts of a set of records ----------------------------------------------------------------------------------


class Texts(NamedTuple):
    """Which texts of a split go into a set of records."""

    split: str
    indices: np.ndarray | None  # their positions, which ascend; None: all
    count: int
    sha256: str  # of their content, so that records of other texts are noticed


class Tally:
    """Counts examples as they pass by, and computes the checksum of their content."""

    def __init__(self):
        self.count, self._digest = 0, hashlib.sha256()

    def add(self, example):
        self._digest.update(f"{example.label} {example.title}\n{example.text}\n".encode("utf-8", "surrogatepass"))
        self.count += 1

    def finish(self, split, indices=None):
        return Texts(split, indices, self.count, self._digest.hexdigest())


def find_texts(source, split, indices=None):
    """Reads the texts at these positions of a split, or all, to count them and compute their checksum."""
    tally = Tally()
    for _, example in _read_texts(source, split, indices):
        tally.add(example)
    return tally.finish(split, indices)


def read_inputs(source, texts, shards):
    """Yields (positions, examples) of each of these shards, which ascend; what lies between them is read over."""
    stream = _read_texts(source, texts.split, texts.indices)
    next_shard = 0
    for shard in shards:
        num_skipped = (shard - next_shard) * preprocessing.SHARD_SIZE
        block = itertools.islice(stream, num_skipped, num_skipped + preprocessing.SHARD_SIZE)
        yield tuple(zip(*block))
        next_shard = shard + 1


def _read_texts(source, split, indices):
    """Yields (position, example)."""
    examples = enumerate(source.read(split))
    return examples if indices is None else take(examples, indices.tolist())


def take(examples, positions):
    """Yields the examples of an iterator that are at these positions, which ascend; the rest is not read."""
    start = 0
    for position in positions:
        yield next(itertools.islice(examples, position - start, None))
        start = position + 1
