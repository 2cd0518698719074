"""Files: JSON, arrays, writing under a temporary name, checksums, and what to say when a disk refuses.

A path may be of any file system that TensorFlow knows, such as gs://bucket/folder. Files of this machine are handled
without TensorFlow, so that small programs start at once.
"""

import collections
import contextlib
import errno
import fnmatch
import hashlib
import io
import json
import math
import os
import shutil
import sys
import tempfile
import uuid
import zipfile

import numpy as np

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors of full disks, and of files that are too large for them
REMOTE_BUFFER = 1 << 20  # bytes that are read or written at once on other machines
RESTORE = "delete it or restore it."  # the advice on a stored file that this package wrote itself


# ---- of this machine and of others -----------------------------------------------------------------------------------


def is_remote(path):
    """Whether a path is TensorFlow's to open."""
    return "://" in str(path)


def require_local(name, path, why):
    if is_remote(path):
        raise ValueError(f"{name}={path}: expected a path of this machine, since {why}. Copy it there.")


def open_file(path, mode="r"):
    """Like `open`, in UTF-8 and without translation of line ends."""
    if not is_remote(path):
        return open(path, mode, encoding=None if "b" in mode else "utf-8", newline=None if "b" in mode else "")
    raw = _RemoteFile(str(path), mode)
    file = (io.BufferedReader if "r" in mode else io.BufferedWriter)(raw, REMOTE_BUFFER)
    return file if "b" in mode else io.TextIOWrapper(file, encoding="utf-8", newline="")


class _RemoteFile(io.RawIOBase):
    """What TensorFlow opens, as Python's own readers and writers, such as gzip's and Pillow's, expect a file to be."""

    def __init__(self, path, mode):
        super().__init__()
        self.name, self.mode = path, mode
        if "r" in mode and not is_file(path):  # TensorFlow would tell in the first read only
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._file = _gfile().GFile(path, mode[0] + "b")
        if self.writable():
            self._file.write(b"")  # else a file to which nothing is written would not come into being

    def readable(self):
        return "r" in self.mode

    def writable(self):
        return not self.readable()

    def seekable(self):
        return self.readable()

    def readinto(self, buffer):
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def readall(self):
        # To its end and not to its length, which may be that of another file in its place by now.
        return b"".join(iter(lambda: self._file.read(REMOTE_BUFFER), b""))

    def write(self, content):
        self._file.write(bytes(content))
        return len(content)

    def seek(self, offset, whence=os.SEEK_SET):
        self._file.seek(offset, whence)
        return self._file.tell()

    def tell(self):
        return self._file.tell()

    def close(self):
        if not self.closed:
            try:
                self._file.close()
            finally:
                super().close()


def _gfile():
    import tensorflow as tf

    return tf.io.gfile


def read_bytes(path):
    with open_file(path, "rb") as file:
        return file.read()


def exists(path):
    """Whether it is a file or a folder; without real folders, on ram:// say, whatever a name begins with is one."""
    return (_gfile().exists if is_remote(path) else os.path.exists)(path)


def is_folder(path):
    return (_gfile().isdir if is_remote(path) else os.path.isdir)(path)


def is_file(path):
    return exists(path) and not is_folder(path) if is_remote(path) else os.path.isfile(path)


def make_folder(path):
    """With those above it, unless they are there; "" is the current one."""
    _gfile().makedirs(path) if is_remote(path) else os.makedirs(path or ".", exist_ok=True)


def list_folder(path):
    """The names in a folder, sorted."""
    names = _gfile().listdir(path) if is_remote(path) else os.listdir(path)
    return sorted(name.rstrip("/") for name in names)  # gs:// marks folders so


def walk(folder):
    """Like os.walk, and into linked folders, too, but for links back to a folder that they are in."""
    if not is_remote(folder):
        above = {}  # of each folder to come: the real paths of those that it is in
        for parent, folders, names in os.walk(folder, followlinks=True):
            chain = {resolve(parent), *above.pop(parent, ())}
            folders[:] = [name for name in folders if resolve(os.path.join(parent, name)) not in chain]
            above |= {os.path.join(parent, name): chain for name in folders}
            yield parent, folders, names
        return
    names = list_folder(folder) if is_folder(folder) else []
    folders = [name for name in names if is_folder(os.path.join(folder, name))]
    yield folder, folders, [name for name in names if name not in set(folders)]
    for name in folders:
        yield from walk(os.path.join(folder, name))


def find(folder, pattern):
    """Paths in a folder whose name fits a pattern such as *.json."""
    return [os.path.join(folder, name) for name in list_folder(folder) if fnmatch.fnmatchcase(name, pattern)]


def status(path):
    """Size in bytes, and time of the last change in nanoseconds."""
    if is_remote(path):
        found = _gfile().stat(path)
        return found.length, found.mtime_nsec
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def size(path):
    return status(path)[0]


def absolute(path):
    """A path that stays the same in another working folder."""
    return str(path) if is_remote(path) else os.path.abspath(path)


def resolve(path):
    """The one path behind all that lead to a place, by links or otherwise."""
    return str(path).rstrip("/") if is_remote(path) else os.path.realpath(path)


def rename(path, new_path):
    _gfile().rename(path, new_path, overwrite=True) if is_remote(path) else os.replace(path, new_path)


def remove(path):
    (_gfile().remove if is_remote(path) else os.remove)(path)


def remove_folder(path):
    """With all that is in it."""
    (_gfile().rmtree if is_remote(path) else shutil.rmtree)(path)


def copy(path, new_path):
    with open_file(path, "rb") as source, replacing(new_path, "wb") as target:
        shutil.copyfileobj(source, target, REMOTE_BUFFER)


def copy_folder(folder, new_folder):
    """Copies a folder to one that does not exist yet."""
    if exists(new_folder):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_folder)
    for parent, _, names in walk(folder):
        target = os.path.join(new_folder, os.path.relpath(parent, folder)) if parent != folder else new_folder
        make_folder(target)
        for name in names:
            copy(os.path.join(parent, name), os.path.join(target, name))


# ---- writing --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing(path, mode="w"):
    """Gives a file that takes the place of `path` if nothing is raised: a reader sees the old file or the new one."""
    temporary = f"{path}.tmp-{uuid.uuid4().hex}"  # several processes may write the same file at once
    try:
        with open_file(temporary, mode) as file:
            yield file
        rename(temporary, path)
    except OSError as error:
        error.filename = error.filename or path  # what fails in writing does not tell where
        raise
    finally:
        if exists(temporary):
            remove(temporary)


def write_figure(path, figure):
    """Writes a drawing of matplotlib's, in the format that the ending of its name tells."""
    with replacing(path, "wb") as file:
        figure.savefig(file, format=os.path.splitext(path)[1][1:] or "png", dpi=100)


def remove_leftovers(*paths):
    """Deletes what killed processes left of these files under temporary names; for files that no other writes now."""
    for path in map(str, paths):
        folder, name = os.path.split(path)
        for other in list_folder(folder or ".") if is_folder(folder or ".") else ():
            if other.startswith(f"{name}.tmp-"):
                remove(os.path.join(folder, other))


def remove_unfinished(folder):
    """Deletes what killed processes left of the weights and lists that TensorFlow writes, as large as they are.

    It writes under such names at first, new ones each time; so nothing else would ever remove them.
    """
    for name in list_folder(folder) if is_folder(folder) else ():
        path = os.path.join(folder, name)
        if name.endswith("_temp") and is_folder(path):
            remove_folder(path)
        elif ".tmp" in name or ".tempstate" in name:
            remove(path)


def write_json(path, value):
    content = json.dumps(value, indent=2) + "\n"
    with replacing(path) as file:
        file.write(content)


def create_json(path, value):
    """Writes a file that is not there yet, and returns True; of several processes that do so one alone succeeds.

    On a file system without links, such as gs://, that does not hold for processes that do so in the same moment.
    """
    if exists(path):
        return False
    if not is_remote(path):
        temporary = f"{path}.tmp-{uuid.uuid4().hex}"
        try:
            write_json(temporary, value)
            os.link(temporary, path)
            return True
        except FileExistsError:
            return False
        except OSError:
            if exists(path):  # another process was faster, and has tidied up
                return False
            if not exists(temporary):  # it could not be written; else there are no links
                raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)
    write_json(path, value)
    return True


def read_json(path):
    """Any JSON value of a file; whatever else the file holds is a ValueError that names it."""
    content = read_bytes(path)
    try:
        return json.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not valid JSON (not UTF-8: {error}): {RESTORE}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}): {RESTORE}") from error
    except RecursionError as error:
        raise ValueError(f"{path} is not valid JSON (nested too deeply): {RESTORE}") from error


# What a rule of check_fields allows, in words. A whole number has to fit into 64 bits: others overflow somewhere.
RULES = {
    int: ("a whole number of at least 0", lambda value: type(value) is int and 0 <= value < 2**63),
    float: ("a finite number", lambda value: type(value) in (int, float) and -1e308 <= value <= 1e308),
    str: ("a text", lambda value: type(value) is str),
    bool: ("true or false", lambda value: type(value) is bool),
    dict: ("an object, {…}", lambda value: type(value) is dict),
    list: ("a list", lambda value: type(value) is list),
}


def check_fields(path, values, fields, optional=None, advice=RESTORE):
    """Raises ValueError unless what was read from a file is a dict with these fields; others may be there, too.

    Args:
      path: for the message: the file, or a place in it.
      fields: dict from name to rule: a key of RULES, a range of whole numbers, or [rule] for a list of such values.
      optional: like fields; these may be missing.

    Returns:
      values.
    """
    if type(values) is not dict:
        raise ValueError(f"{path} holds {shorten(values)}: expected an object with {', '.join(fields)}; {advice}")
    for name, rule in (fields | (optional or {})).items():
        if name not in values and name in fields:
            raise ValueError(f"{path}: {name} is missing: expected {_describe_rule(rule)}; {advice}")
        if name in values and not _follows(values[name], rule):
            found = shorten(values[name])
            raise ValueError(f"{path}: {name}={found}: expected {_describe_rule(rule)}; {advice}")
    return values


def _follows(value, rule):
    if isinstance(rule, range):
        return type(value) is int and value in rule
    if isinstance(rule, list):
        return type(value) is list and all(_follows(element, rule[0]) for element in value)
    return RULES[rule][1](value)


def _describe_rule(rule):
    if isinstance(rule, range):
        return f"a whole number from {rule[0]} to {rule[-1]}"
    return f"a list, each {_describe_rule(rule[0])}" if isinstance(rule, list) else RULES[rule][0]


def check_labels(path, labels, advice=RESTORE):
    """Raises ValueError unless a stored list has two or more different labels; a user's own may be numbers."""
    wrong = [label for label in labels if not isinstance(label, (str, int, float))]
    if wrong or len(labels) < 2 or len(set(labels)) < len(labels):
        raise ValueError(f"{path}: class_names={shorten(labels)}: expected different labels; {advice}")


def shorten(value, length=60):
    """A stored value as it may stand in a message of one line."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested as deeply as can be read, or a number of thousands of digits
        text = f"a {type(value).__name__}"
    return _cut(text, length)


def _cut(text, length):
    return text if len(text) <= length else f"{text[:length]}…"


def reason_of(error, length=300):
    """The message of an error, which may tell of much that a file holds, as a part of one line."""
    return _cut(" ".join(str(error).split()), length) or type(error).__name__


def join_names(names, most=10):
    """Names that a file gave, such as its columns, as they may stand in a message of one line."""
    names = list(names)
    return ", ".join(_cut(name, 60) for name in names[:most]) + (", …" if len(names) > most else "")


# ---- arrays ---------------------------------------------------------------------------------------------------------

Header = collections.namedtuple("Header", "shape fortran_order dtype")
MOST_INFLATED = 1032  # bytes that deflate makes of one byte at most: what claims more is no honest file


def write_arrays(path, **arrays):
    """Writes an .npz file."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    with replacing(path, "wb") as file:
        file.write(content.getvalue())


def read_arrays(path, advice=RESTORE, what=""):
    """All arrays of an .npz file, as a dict. Whatever is wrong with the file is a ValueError that names it."""
    with explain_damage(what or path, advice), _opened_archive(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    return {name: read_array(path, name, advice, what) for name in names}


def read_array(path, name="", advice=RESTORE, what=""):
    """The array of a .npy file or, with a name, one of an .npz file; see open_array."""
    with open_array(path, name, advice, what) as (header, file):
        array = np.empty(math.prod(header.shape), header.dtype)
        step = max((1 << 20) // header.dtype.itemsize, 1)
        for start in range(0, len(array), step):
            part = array[start : start + step]
            part[:] = np.frombuffer(read_exactly(file, part.nbytes), header.dtype)
        if header.dtype.kind == "U":
            _check_characters(array.view(header.dtype.byteorder + "u4"))
        return array.reshape(header.shape, order="F" if header.fortran_order else "C")


def _check_characters(codes):
    if ((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))).any():
        raise ValueError("it has characters that do not exist, or halves of some")


def map_array(path, dtype, shape, offset=0):
    """The array whose content begins at `offset` of a file; the system loads into memory what is used of it.

    What lies on another machine is copied to a nameless file of this one first, which ends with the array.
    """
    if not is_remote(path):
        return np.asarray(np.memmap(path, dtype, "r", offset, shape))
    with open_file(path, "rb") as source, tempfile.TemporaryFile() as file:
        shutil.copyfileobj(source, file, REMOTE_BUFFER)
        file.flush()
        return np.asarray(np.memmap(file, dtype, "r", offset, shape))


@contextlib.contextmanager
def open_array(path, name="", advice=RESTORE, what=""):
    """Gives the header of an array and the file where its content begins, which may be larger than the memory.

    What goes wrong in the block is a ValueError, too. An array is never unpickled, and its size has been checked
    against that of the file before anything of that size is asked for.

    Args:
      name: of the array in an .npz file; "" for a .npy file.
      advice: what the user should do about a damaged file; what: how messages name it, if not by its path.
    """
    with explain_damage(what or path, advice), contextlib.ExitStack() as stack:
        if name:
            archive = stack.enter_context(_opened_archive(path))
            file, num_bytes = _open_member(archive, name)
            stack.enter_context(file)
        else:
            file = stack.enter_context(open_file(path, "rb"))
            num_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
        header = _read_header(file)
        expected = math.prod(header.shape) * header.dtype.itemsize
        if expected != num_bytes - file.tell():
            raise ValueError(
                f"its header tells of shape={header.shape} and dtype={header.dtype}, which are {expected} bytes, but "
                f"{num_bytes - file.tell()} follow"
            )
        yield header, file


def read_exactly(file, num_bytes):
    content = file.read(num_bytes)
    if len(content) != num_bytes:
        raise ValueError(f"it breaks off: expected {num_bytes} more bytes, found {len(content)}")
    return content


@contextlib.contextmanager
def explain_damage(path, advice=RESTORE):
    """Turns whatever goes wrong in the block, where a file is read, into "<path> cannot be read (…): <advice>"."""
    try:
        yield
    except Exception as error:  # damaged archives and headers make their readers raise almost anything
        raise ValueError(f"{path} cannot be read ({reason_of(error)}): {advice}") from error


@contextlib.contextmanager
def _opened_archive(path):
    with open_file(path, "rb") as file, zipfile.ZipFile(file) as archive:
        yield archive


def _open_member(archive, name):
    """Returns the open file of an array, and its size."""
    names = [member.removesuffix(".npy") for member in archive.namelist()]
    if name not in names:
        raise ValueError(f"its arrays are {join_names(names) or 'none'}, {name} is missing")
    member = archive.getinfo(f"{name}.npy")
    if member.file_size > MOST_INFLATED * member.compress_size:
        raise ValueError(f"{name} is said to be {member.file_size} bytes, packed into {member.compress_size}")
    return archive.open(member), member.file_size


def _read_header(file):
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in readers:
        raise ValueError(f"its format has version={version}: expected 1.0 or 2.0")
    header = Header(*readers[version](file))
    if header.dtype.hasobject or not header.dtype.itemsize or min(header.shape, default=0) < 0:
        raise ValueError(f"shape={header.shape}, dtype={header.dtype}: expected an array of numbers or texts")
    return header


# ---- whole files ----------------------------------------------------------------------------------------------------


def checksum(path, algorithm="sha256"):
    """The hex digest of a file's content."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open_file(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def checksum_of(blocks):
    """The SHA-256 hex digest of bytes that come block after block."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def explain_refusal(what, advice):
    """Turns an error of the file system in the block into a ValueError: "<what> cannot be written (…): <advice>"."""
    try:
        yield
    except file_errors() as error:
        raise ValueError(f"{what} cannot be written ({error}): {advice}") from error


def file_errors():
    """What a file system raises; TensorFlow has errors of its own, but none before it is loaded."""
    tensorflow = sys.modules.get("tensorflow")
    return (OSError, tensorflow.errors.OpError) if tensorflow else (OSError,)
