"""The text data sets: one table by task_name, and the one way to open them.

source = open_source(config)                              # any config with the fields of text.config.SourceConfig
for example in source.read("unlabeled"): ...
"""

from collections.abc import Callable
from typing import NamedTuple

from text.datasets import imdb, tables

FILE_SETTINGS = ("train_file", "test_file", "unlabeled_file")


class Entry(NamedTuple):
    open: Callable  # from the config to a Source
    files: tuple[str, ...] = ()  # which of FILE_SETTINGS it takes


# A new data set is a file beside this one, with a function that opens it, and an entry here.
SOURCES = {
    "imdb": Entry(imdb.open_reviews),
    "yelp-2": Entry(tables.open_official, ("unlabeled_file",)),
    "yelp-5": Entry(tables.open_official, ("unlabeled_file",)),
    "amazon-2": Entry(tables.open_official, ("unlabeled_file",)),
    "amazon-5": Entry(tables.open_official, ("unlabeled_file",)),
    "dbpedia": Entry(tables.open_official),
    "csv": Entry(tables.open_user_files, FILE_SETTINGS),  # a user's own files
}
TASK_NAMES = tuple(SOURCES)


def open_source(config):
    """Finds the files of a data set and returns them as a text.datasets.source.Source."""
    if config.task_name not in SOURCES:
        raise ValueError(f"task_name={config.task_name!r} is unknown: use one of {', '.join(SOURCES)}")
    entry = SOURCES[config.task_name]
    for name in FILE_SETTINGS:
        value = getattr(config, name, "")
        if value and name not in entry.files:
            known = ", ".join(task_name for task_name, other in SOURCES.items() if name in other.files)
            raise ValueError(f"{name}={str(value)!r} is not for {config.task_name}: it can be used with {known}")
    return entry.open(config)
