"""IMDb: the folder aclImdb or its archive.

Reviews are ordered by part (neg, pos, unsup) and number, in the folder as in the archive: train/neg/0_3.txt is the
first of all. Neither listdir nor the archive has an order of its own to rely on.
"""

import functools
import gzip
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


# The longest review has 14 kB, those of a split 100 MB together, and the whole archive unpacks to less than 600 MB.
MAX_REVIEW_BYTES, MAX_SPLIT_BYTES, MAX_ARCHIVE_BYTES = 1 << 20, 1 << 28, 1 << 30
MAX_READ_BYTES = 1 << 24  # at once: a header can claim a name of any length


def open_reviews(config):
    path, md5 = find_reviews(config)
    facts, sizes = FACTS, {}
    if not config.allow_partial:
        sizes = {"train": facts.train_size, "test": facts.test_size, "unlabeled": facts.train_size + facts.unsup_size}
    readers = {split: functools.partial(read_reviews, facts, path, md5, split) for split in PARTS}
    return Source(facts, readers, functools.partial(_identify, path), sizes)


def find_reviews(config):
    """The path of the folder or of the archive, and the checksum that the latter should have; "" for any."""
    found = find_raw(config, FACTS, f"{FACTS.folder}/train", "train", ARCHIVE)
    path = found if os.path.basename(found) == ARCHIVE else os.path.dirname(found)
    return path, "" if config.allow_partial else ARCHIVE_MD5


def _identify(path):
    parts = [os.path.join(path, part) for part in PARTS["unlabeled"]]
    parts = [path] if files.is_file(path) else list(filter(files.is_folder, parts))
    return [FACTS.name, FACTS.min_unsup_length, describe_files(*parts)]


def read_reviews(facts, path, md5, split):
    contents = _read_archive(path, md5, split) if files.is_file(path) else _read_folder(path, split)
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
        folder = os.path.join(path, part)
        names = files.list_folder(folder) if files.is_folder(folder) else []
        for key in sorted(filter(order, (f"{part}/{name}" for name in names)), key=order):
            yield key, _read_review(os.path.join(path, key))


def _read_review(path):
    """What is no plain file, such as a pipe or a device, could be read without end."""
    if not files.is_file(path):
        raise ValueError(f"{path} is no file: expected a review. Remove it, or {FACTS.how_to_get}")
    with files.open_file(path, "rb") as file:
        content = file.read(MAX_REVIEW_BYTES + 1)
    if len(content) > MAX_REVIEW_BYTES:
        raise ValueError(f"{path} has more than {MAX_REVIEW_BYTES:,} bytes: expected a review. Remove it")
    return content


def _read_archive(path, md5, split):
    """Yields (key, bytes) in order. Going back in a compressed file means to start over: it is read once, into memory.

    That takes 100 MB at most, which only IMDb is small enough for.
    """
    if md5 and (found := files.checksum(path, "md5")) != md5:
        raise _damaged_archive(path, f"expected md5={md5}, found md5={found}")
    try:
        with files.open_file(path, "rb") as stored, gzip.GzipFile(fileobj=stored) as unpacked:
            contents = _read_members(BoundedReader(unpacked), split)
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError, RecursionError) as error:
        raise _damaged_archive(
            path, f"reading it fails with {type(error).__name__}: {files.reason_of(error)}"
        ) from error
    for key in sorted(contents, key=order):
        yield key, contents.pop(key)


def _read_members(reader, split):
    """The reviews of a split: dict from key to bytes."""
    contents, num_bytes = {}, 0
    with tarfile.open(fileobj=reader, mode="r:") as archive:
        for member in iter(archive.next, None):
            archive.members = []  # which would keep all of them
            key = member.name.partition("/")[2]
            if key.rpartition("/")[0] in PARTS[split] and order(key):
                if not member.isreg() or member.issparse():
                    raise ValueError(f"{member.name} is no plain file")
                num_bytes += member.size
                if member.size > MAX_REVIEW_BYTES or num_bytes > MAX_SPLIT_BYTES:
                    raise ValueError(f"{member.name} has {member.size:,} bytes, the reviews so far {num_bytes:,}")
                reader.seek(member.offset_data)
                contents[key] = reader.read(member.size)
    # tarfile takes a damaged header for the end of the archive, which is a block of zeros.
    if reader.last_read != bytes(tarfile.BLOCKSIZE):
        raise ValueError(f"it breaks off after {reader.tell():,} bytes")
    while rest := reader.read(MAX_READ_BYTES):  # to its end, where the checksum is
        if rest.strip(b"\0"):
            raise ValueError("something comes after its end")
    return contents


class BoundedReader:
    """A file that tarfile reads from front to back, up to MAX_ARCHIVE_BYTES and never too much at once."""

    def __init__(self, file):
        self.file, self.last_read = file, b""

    def read(self, size):
        if not 0 <= size <= MAX_READ_BYTES:
            raise ValueError(f"a header claims {size:,} bytes")
        self.last_read = self.file.read(size)
        self._refuse_bomb(self.tell())
        return self.last_read

    def seek(self, position):
        self._refuse_bomb(position)
        if position < self.tell():
            raise ValueError("a header claims less than 0 bytes")
        self.file.seek(position)

    def tell(self):
        return self.file.tell()

    def _refuse_bomb(self, position):
        if position > MAX_ARCHIVE_BYTES:
            raise ValueError(f"it unpacks to more than {MAX_ARCHIVE_BYTES:,} bytes")


def _damaged_archive(path, reason):
    return ValueError(f"{path} is not the official archive: {reason}. Remove it and {FACTS.how_to_get}")
