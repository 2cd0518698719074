"""IMDb: the folder aclImdb or its archive.

Reviews are ordered by part (neg, pos, unsup) and number, in the folder as in the archive: train/neg/0_3.txt is the
first of all. Neither listdir nor the archive has an order of its own to rely on.
"""

import functools
import os
import re
import tarfile
import zlib

from text.datasets.lines import decode
from text.datasets.source import Example, Facts, Source, clean, describe_files, find_raw
from utils import files

FACTS = Facts(
    name="imdb",
    class_names=("pos", "neg"),
    train_size=25_000,
    test_size=25_000,
    unsup_size=50_000,
    min_unsup_length=500,
    labelled_ids=(
        *("9716_10", "839_7", "1047_8", "1612_10", "6836_9", "12323_10", "8710_7", "2659_8", "1404_10", "4722_8"),
        *("9851_1", "4681_4", "3386_2", "6068_4", "11186_2", "362_3", "135_4", "2461_4", "3728_1", "11575_1"),
    ),
    folder="aclImdb",
    how_to_get="run: bash scripts/download_imdb.sh <raw_data_dir>",
)
ARCHIVE = "aclImdb_v1.tar.gz"
ARCHIVE_MD5 = "7c2ac02c03563afcf9b574c7e56c153a"
REVIEW = re.compile(r"(\d+)_(\d+)\.txt")
PARTS = {
    "train": ("train/neg", "train/pos"),
    "test": ("test/neg", "test/pos"),
    "unlabeled": ("train/neg", "train/pos", "train/unsup"),
}


def open_reviews(config):
    found = find_raw(config, FACTS, f"{FACTS.folder}/train", "train", ARCHIVE)
    path = found if found.name == ARCHIVE else found.parent
    facts, md5, sizes = FACTS, "", {}
    if not config.allow_partial:
        md5 = ARCHIVE_MD5
        sizes = {"train": facts.train_size, "test": facts.test_size, "unlabeled": facts.train_size + facts.unsup_size}
    readers = {split: functools.partial(read_reviews, facts, path, md5, split) for split in PARTS}
    return Source(facts, readers, functools.partial(_identify, path), sizes)


def _identify(path):
    parts = [path] if path.is_file() else [path / part for part in PARTS["unlabeled"] if (path / part).is_dir()]
    return [FACTS.name, FACTS.min_unsup_length, describe_files(*parts)]


def read_reviews(facts, path, md5, split):
    contents = _read_archive(path, md5, split) if path.is_file() else _read_folder(path, split)
    for key, content in contents:
        part = key.split("/")[1]
        text = clean(decode(content, f"{path}, {key}"))
        too_short = part == "unsup" and len(text) < facts.min_unsup_length
        label = -1 if split == "unlabeled" else facts.class_names.index(part)
        yield None if too_short else Example(key, text, None, label)


def order(key):
    """What to sort keys such as train/pos/9716_10.txt by, or None for other files."""
    part, _, name = key.rpartition("/")
    match = REVIEW.fullmatch(name)
    return match and (part, int(match[1]), int(match[2]))


def _read_folder(path, split):
    """Yields (key, bytes) in order, one file at a time."""
    for part in PARTS[split]:
        names = os.listdir(path / part) if (path / part).is_dir() else []
        for key in sorted(filter(order, (f"{part}/{name}" for name in names)), key=order):
            yield key, (path / key).read_bytes()


def _read_archive(path, md5, split):
    """Yields (key, bytes) in order. Going back in a compressed file means to start over: it is read once, into memory.

    That takes 100 MB at most, which only IMDb is small enough for.
    """
    if md5 and (found := files.checksum(path, "md5")) != md5:
        raise _damaged_archive(path, f"expected md5={md5}, found md5={found}")
    contents = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                key = member.name.partition("/")[2]
                if key.rpartition("/")[0] in PARTS[split] and order(key):
                    contents[key] = archive.extractfile(member).read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise _damaged_archive(path, f"reading it fails with {type(error).__name__}: {error}") from error
    for key in sorted(contents, key=order):
        yield key, contents.pop(key)


def _damaged_archive(path, reason):
    return ValueError(f"{path} is not the official archive: {reason}. Remove it and {FACTS.how_to_get}")
