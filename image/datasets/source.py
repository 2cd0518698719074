"""What a data set is to the rest of the package: facts about it, and a function that reads it."""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from utils import files

# In which order training examples are candidates for a label. The published CIFAR-10 subsets are the first images of
# the files; those of SVHN are the first of this permutation.
LABEL_ORDERS = {
    "file": np.arange,
    "numpy_seed_0": lambda num_examples: np.random.RandomState(0).permutation(num_examples),
}


@dataclass(frozen=True)
class Facts:
    """What is fixed about a data set. Mean and std are per RGB channel, on the [0, 1] scale."""

    name: str
    image_size: int
    class_names: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    flip: bool  # a horizontal flip keeps the label
    train_size: int
    test_size: int
    extra_size: int = 0  # 0: there is no such split
    label_order: str = "file"  # a key of LABEL_ORDERS

    def __post_init__(self):
        if self.label_order not in LABEL_ORDERS:
            order = files.shorten(self.label_order)
            raise ValueError(f"label_order={order} is unknown: use one of {', '.join(LABEL_ORDERS)}.")
        if len(self.class_names) < 2:
            raise ValueError(f"class_names={files.shorten(self.class_names)}: expected at least two.")
        for name, low in (("mean", 0), ("std", 1e-6)):
            values = getattr(self, name)
            if len(values) != 3 or not all(low <= value <= 1 for value in values):
                found = files.shorten(values)
                raise ValueError(f"{name}={found}: expected three numbers from {low:g} to 1, one for each channel.")

    @property
    def num_classes(self):
        return len(self.class_names)

    @property
    def split_sizes(self):
        sizes = {"train": self.train_size, "test": self.test_size, "extra": self.extra_size}
        return {split: size for split, size in sizes.items() if size}


FACT_FIELDS = {"name": str, "image_size": range(1, 10_001), "class_names": list, "mean": [float], "std": [float]}
FACT_FIELDS |= {"flip": bool, "train_size": int, "test_size": int}


def parse_facts(path, values):
    """Facts from what JSON makes of dataclasses.asdict(facts); path: where it was read, for messages."""
    files.check_fields(path, values, FACT_FIELDS, {"extra_size": int, "label_order": str})
    known = {field.name for field in dataclasses.fields(Facts)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(
            f"{path}: {files.join_names(unknown)} is unknown: expected {', '.join(sorted(known))}; {files.RESTORE}"
        )
    if not all(isinstance(name, (str, int, float)) and name == name for name in values["class_names"]):
        raise ValueError(f"{path}: class_names: expected texts or numbers; {files.RESTORE}")
    try:
        return Facts(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
    except ValueError as error:
        raise ValueError(f"{path}: {error} {files.RESTORE.capitalize()}") from error


class Source(NamedTuple):
    """A data set that is ready to be read.

    `read` is a function without arguments that returns a dict from "train", "unlabeled" and "test" to images, uint8
    [n, size, size, 3], and labels, int64 [n], or None. It is sent to other processes, which read once: it can be
    pickled and compared.
    """

    facts: Facts
    read: Callable
    checksums: dict  # by split, of its content; {} for official files, which are known


# ---- the user's own images ------------------------------------------------------------------------------------------


def describe(name, images, class_names, flip, **sizes):
    """The facts about images, uint8 [N, size, size, 3], whose mean and deviation are measured."""
    return Facts(name, images.shape[1], class_names, *channel_statistics(images), flip, **sizes)


def channel_statistics(images):
    """Mean and deviation of each channel of uint8 [N, size, size, 3], on the [0, 1] scale, as two tuples."""
    # From counts of the 256 values, in blocks: no float copy of all images is made.
    counts = np.zeros([3, 256])
    for start in range(0, len(images), 1024):
        for channel in range(3):
            counts[channel] += np.bincount(images[start : start + 1024, ..., channel].ravel(), minlength=256)
    shares, values = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
    mean = shares @ values
    std = np.sqrt(np.maximum(shares @ values**2 - mean**2, 0))
    return tuple(mean.tolist()), tuple(np.maximum(std, 1e-3).tolist())  # a channel of one value stays finite


# ---- official files -------------------------------------------------------------------------------------------------


class OfficialFiles(NamedTuple):
    """Reads the files of a published data set when called."""

    read_split: Callable  # a function (raw_data_dir, split, allow_partial) of a module → images, labels
    raw_data_dir: str
    use_extra: bool
    allow_partial: bool

    def __call__(self):
        train, test = (self.read_split(self.raw_data_dir, split, self.allow_partial) for split in ("train", "test"))
        unlabeled = train
        if self.use_extra:
            extra = self.read_split(self.raw_data_dir, "extra", self.allow_partial)
            unlabeled = tuple(np.concatenate(pair) for pair in zip(train, extra))
        return {"train": train, "unlabeled": unlabeled, "test": test}


def open_official(facts, read_split, config):
    """Returns the Source; config: image.config.PreprocessConfig."""
    if config.image_size not in (0, facts.image_size):
        raise ValueError(
            f"image_size={config.image_size}: the images of task_name={facts.name} have {facts.image_size} pixels and "
            "are used as they are. Leave the flag away; task_name=folder and task_name=npz resize images."
        )
    raw_data_dir = config.raw_data_dir or os.path.join("data", "raw", facts.name)
    return Source(facts, OfficialFiles(read_split, raw_data_dir, config.use_extra, config.allow_partial), {})


def download_command(facts):
    return f"bash scripts/download_{facts.name}.sh"


def damaged_file(facts, path, expected, found):
    return ValueError(
        f"{path} is not a whole {facts.name} file: expected {expected}, found {found}. "
        f"Remove it and download again: {download_command(facts)}"
    )


def check_examples(facts, path, images, labels, num_images):
    """Refuses arrays that do not fit the data set. num_images=None: as many as there are labels."""
    num_images = len(labels) if num_images is None else num_images
    shape = (num_images, facts.image_size, facts.image_size, 3)
    if labels.dtype.kind not in "iu":
        raise damaged_file(facts, path, "labels that are whole numbers", f"labels of type {labels.dtype}")
    if images.dtype != np.uint8 or images.shape != shape or labels.shape != shape[:1]:
        found = f"{images.dtype} images of shape {images.shape} and {len(labels)} labels"
        raise damaged_file(facts, path, f"uint8 images of shape {shape} and {num_images} labels", found)
    if np.any((labels < 0) | (labels >= facts.num_classes)):
        found = f"labels from {labels.min()} to {labels.max()}"
        raise damaged_file(facts, path, f"labels from 0 to {facts.num_classes - 1}", found)
