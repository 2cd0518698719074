"""Text files of the stages: read line by line, and complete as soon as they have their final name.

    if not stage_files.is_finished(path, settings):
        with stage_files.create(path, settings) as file:      # writes path.part, renames it at the end
            file.write(b"a line\n")

Beside each file, path.json tells what it was made from. A stage that is run again keeps what fits and refuses what was
made from something else. Lines end at "\n" alone: other characters that Unicode counts as ends of lines are text.

On other machines' file systems, such as gs://, nothing can be appended to a file: there it is written in one go.
"""

import codecs
import contextlib
import fcntl
import os

from utils import files, locks
from utils.locks import BusyError

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
    if not files.is_file(path):
        raise ValueError(f"{path!r} is not a file: expected a text file, one text per line.")
    return files.open_file(path, "rb")


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
    part = [f"{path}.part"] if files.is_file(f"{path}.part") and files.size(f"{path}.part") else []
    blocks = [_blocks_folder(path)] if files.is_folder(_blocks_folder(path)) else []
    found = ([path] if files.is_file(path) else []) + part + blocks
    if not found:
        return False
    stored = read_settings(path)
    names = [name for name in {**stored, **settings} if stored.get(name) != settings.get(name)]
    if names:
        lines = "; ".join(
            f"{name}: was {files.shorten(stored.get(name))}, now {settings.get(name)!r}" for name in names
        )
        raise ValueError(
            f"{found[0]} was made with other settings ({lines}). Give those again, delete the file to make it anew, or "
            "choose another place for the output."
        )
    return files.is_file(path)


def read_settings(path):
    """What a stage made `path` from; empty if another program made it."""
    settings_path = f"{path}.json"
    if not files.is_file(settings_path):
        return {}
    return files.check_fields(settings_path, files.read_json(settings_path), {})


@contextlib.contextmanager
def create(path, settings, resume=False):
    """Gives a binary file to append to, and renames it to `path` if nothing is raised.

    Args:
      resume: keep what a stopped process has written; not for other machines' files.
    """
    files.make_folder(os.path.dirname(path))
    if files.is_remote(path):
        with _create_remote(path, settings) as file:
            yield file
        return
    part = f"{path}.part"
    with _explain_full_disk(path), open(os.open(part, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
        _lock(file, part)
        files.remove_leftovers(f"{path}.json")
        if not resume:
            file.truncate(0)
        files.write_json(f"{path}.json", settings)
        yield file
        sync(file)
        os.replace(part, path)


def _blocks_folder(path):
    return f"{path}.blocks"


@contextlib.contextmanager
def create_from_blocks(path, settings):
    """Gives a function that names the file of the next block of so many lines, and joins these files to `path`.

    The caller writes them; those that a stopped process has left are there already.
    """
    folder, blocks, num_lines = _blocks_folder(path), [], 0

    def next_block(count):
        nonlocal num_lines
        blocks.append(os.path.join(folder, f"{num_lines:012d}-{count}.txt"))
        num_lines += count
        return blocks[-1]

    with create(path, settings) as file:
        files.make_folder(folder)
        yield next_block
        for block in blocks:
            file.write(files.read_bytes(block))
    files.remove_folder(folder)


@contextlib.contextmanager
def _create_remote(path, settings):
    folder, name = os.path.split(path)
    lock = locks.hold(folder, f"another process that writes {name}", "wait for its end.", name=f".{name}.lock")
    with lock, files.replacing(path, "wb") as file:
        files.remove_leftovers(f"{path}.json")
        files.write_json(f"{path}.json", settings)
        yield file


@contextlib.contextmanager
def _explain_full_disk(path):
    """Only errors of writing: in the block files are read, too."""
    try:
        yield
    except OSError as error:
        if error.errno not in files.NO_ROOM:
            raise
        raise ValueError(
            f"{path} cannot be written ({error}): make room there, and give the same command again; whole blocks of "
            "translations are kept."
        ) from error


def sync(file):
    """Returns when everything is on disk, where a kill or a power cut leaves it."""
    file.flush()
    if not files.is_remote(file.name):
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
