"""The image data sets by task_name. A new one is a module here, with open_source, and an entry in SOURCES."""

from image.datasets import arrays, cifar10, digits, folder, svhn
from image.datasets.source import Facts, Source

SOURCES = {
    "cifar10": cifar10.open_source,
    "svhn": svhn.open_source,
    "digits": digits.open_source,
    "folder": folder.open_source,
    "npz": arrays.open_source,
}
# Data that image.preprocess does not read, and what is to be done with them instead.
OTHERS = {
    "imagenet": "its files are used as they are. Check them once, with `python -m image.imagenet_index`.",
    "arrays": "arrays in memory are for ImageClassifier. Save them to files, for --task_name=npz.",
}
TASK_NAMES = (*SOURCES, *OTHERS)
# Settings of image.preprocess that only some data sets read; to give them with others is an error.
READ_BY = {
    "train_dir": ("folder",),
    "unlabeled_dir": ("folder",),
    "test_dir": ("folder",),
    "train_file": ("npz",),
    "unlabeled_file": ("npz",),
    "test_file": ("npz",),
    "flip": ("folder", "npz"),
    "use_extra": ("svhn",),
}

__all__ = ["READ_BY", "SOURCES", "TASK_NAMES", "Facts", "Source", "open_source"]


def open_source(config):
    """Returns the Source that an image.config.PreprocessConfig describes."""
    if config.task_name in OTHERS:
        raise ValueError(f"task_name={config.task_name}: {OTHERS[config.task_name]}")
    return SOURCES[config.task_name](config)
