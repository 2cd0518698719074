"""Files: JSON, arrays, writing under a temporary name, checksums, and what to say when a disk refuses.

A path may be of any file system that TensorFlow knows, such as gs://bucket/folder. Files of this machine are handled
without TensorFlow, so that small programs start at once.
"""

import contextlib
import hashlib
import io
import json
import os
import sys
import uuid

import numpy as np


def open_file(path, mode="r"):
    if "://" in str(path):
        return _gfile().GFile(path, mode)
    return open(path, mode, encoding=None if "b" in mode else "utf-8", newline=None if "b" in mode else "")


def _gfile():
    import tensorflow as tf

    return tf.io.gfile


@contextlib.contextmanager
def replacing(path, mode="w"):
    """Gives a file that takes the place of `path` if nothing is raised: a reader sees the old file or the new one."""
    temporary = f"{path}.tmp-{uuid.uuid4().hex}"  # several processes may write the same file at once
    remote = "://" in str(path)
    try:
        with open_file(temporary, mode) as file:
            yield file
        _gfile().rename(temporary, path, overwrite=True) if remote else os.replace(temporary, path)
    finally:
        if (_gfile().exists if remote else os.path.exists)(temporary):
            (_gfile().remove if remote else os.remove)(temporary)


def write_json(path, value):
    content = json.dumps(value, indent=2) + "\n"
    with replacing(path) as file:
        file.write(content)


def read_json(path):
    with open_file(path) as file:
        try:
            return json.loads(file.read())
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not valid JSON ({error}): delete it or restore it.") from error


def write_arrays(path, **arrays):
    """Writes an .npz file."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    with replacing(path, "wb") as file:
        file.write(content.getvalue())


def checksum(path, algorithm="sha256"):
    """The hex digest of a file's content."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open_file(path, "rb") as file:
        while block := file.read(1 << 20):
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
