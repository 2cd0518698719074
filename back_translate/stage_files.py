"""Text files of the stages: read line by line, and complete as soon as they have their final name.

    if not stage_files.is_finished(path, settings):
        with stage_files.create(path, settings) as file:      # writes path.part, renames it at the end
            file.write(b"a line\n")

Beside each file, path.json tells what it was made from. A stage that is run again keeps what fits and refuses what was
made from something else. Lines end at "\n" alone: other characters that Unicode counts as ends of lines are text.
"""

import codecs
import contextlib
import fcntl
import os

from utils import files


class BusyError(ValueError):
    """Another process writes the same file."""


# ---- reading --------------------------------------------------------------------------------------------------------


def read_lines(path):
    """Yields the lines of a UTF-8 file as str, without their ends, Windows' included, and without a byte order mark."""
    with open_existing(path) as file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            try:
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}, line {number} is not UTF-8 ({error.reason} at byte {error.start} of the line). Save the "
                    "file as UTF-8, or leave out what is not: iconv -c -f utf-8 -t utf-8."
                ) from error


def open_existing(path):
    if not os.path.isfile(path):
        raise ValueError(f"{path!r} is not a file: expected a text file, one text per line.")
    return open(path, "rb")


def sha256_of(path):
    open_existing(path).close()
    return files.checksum(path)


def count_lines(path):
    """Reads the whole file once, so that a line that is not UTF-8 is found before any work is done."""
    return sum(1 for _ in read_lines(path))


# ---- writing --------------------------------------------------------------------------------------------------------


def is_finished(path, settings):
    """Whether `path` has been finished with these settings.

    Raises:
      ValueError: if it, or what a stopped process left of it, was made with others.
    """
    # An empty part is what an attempt left that failed before its first line.
    part = [f"{path}.part"] if os.path.exists(f"{path}.part") and os.path.getsize(f"{path}.part") else []
    found = ([path] if os.path.exists(path) else []) + part
    if not found:
        return False
    stored = read_settings(path)
    names = [name for name in {**stored, **settings} if stored.get(name) != settings.get(name)]
    if names:
        lines = "; ".join(f"{name}: was {stored.get(name)!r}, now {settings.get(name)!r}" for name in names)
        raise ValueError(
            f"{found[0]} was made with other settings ({lines}). Give those again, delete the file to make it anew, or "
            "choose another place for the output."
        )
    return os.path.exists(path)


def read_settings(path):
    """What a stage made `path` from; empty if another program made it."""
    return files.read_json(f"{path}.json") if os.path.exists(f"{path}.json") else {}


@contextlib.contextmanager
def create(path, settings, resume=False):
    """Gives a binary file to append to, and renames it to `path` if nothing is raised.

    Args:
      resume: keep what a stopped process has written.
    """
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    part = f"{path}.part"
    with open(os.open(part, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
        _lock(file, part)
        if not resume:
            file.truncate(0)
        files.write_json(f"{path}.json", settings)
        yield file
        sync(file)
        os.replace(part, path)


def sync(file):
    """Returns when everything is on disk, where a kill or a power cut leaves it."""
    file.flush()
    os.fsync(file.fileno())


def _lock(file, part):
    """The lock ends with the process, however that ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine = os.path.samestat(os.fstat(file.fileno()), os.stat(part))
    except (BlockingIOError, FileNotFoundError):
        mine = False  # not found: the other process has just finished and renamed it
    if not mine:
        raise BusyError(f"{part} is being written by another process: wait for it, or give another --worker_id.")
