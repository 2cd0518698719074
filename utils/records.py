"""Sets of TFRecord shards that are written once, resumed after a kill, and checked when read.

A set is a folder: shards `records-00000-of-00013.tfrecord` and `info.json`. A shard gets its name only when it is
whole; `info.json` holds the settings from the start, and the counts, sizes and checksums when all shards are there.
"""

import collections
import contextlib
import functools
import itertools
import os

import tensorflow as tf

from utils import files, run_dir

RecordSet = collections.namedtuple("RecordSet", "directory paths num_examples settings")


# ---- tf.train.Example -----------------------------------------------------------------------------------------------
# Encoding by hand takes a tenth of the time of the protobuf classes, which would cost more than the augmentation. All
# that goes before a payload depends on its name and length only, and is computed once.


def encode_example(features):
    """Serialises a tf.train.Example.

    Args:
      features: dict from name to bytes or to a non-negative int.
    """
    parts = []
    for name, value in features.items():
        if isinstance(value, bytes):
            parts += (_bytes_prefix(name, len(value)), value)
        else:
            parts.append(_int_entry(name, int(value)))
    body = b"".join(parts)
    return b"\x0a" + _varint(len(body)) + body  # Example.features


@functools.lru_cache(maxsize=65536)
def _bytes_prefix(name, length):
    """What goes before the payload: map entry { key = name, value = Feature { bytes_list { value = payload } } }."""
    prefix = b"\x0a" + _varint(length)  # BytesList.value
    prefix = b"\x0a" + _varint(len(prefix) + length) + prefix  # Feature.bytes_list
    prefix = b"\x12" + _varint(len(prefix) + length) + prefix  # the entry's value
    prefix = _message(b"\x0a", name.encode()) + prefix  # the entry's key
    return b"\x0a" + _varint(len(prefix) + length) + prefix  # Features.feature


@functools.lru_cache(maxsize=65536)
def _int_entry(name, value):
    if not 0 <= value < 2**63:
        raise ValueError(f"feature {name!r}={value}: only integers from 0 to 2**63 - 1 can be stored.")
    feature = _message(b"\x1a", _message(b"\x0a", _varint(value)))  # Feature.int64_list { value, packed }
    return _message(b"\x0a", _message(b"\x0a", name.encode()) + _message(b"\x12", feature))


def _message(tag, payload):
    return tag + _varint(len(payload)) + payload


def _varint(number):
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


# ---- writing --------------------------------------------------------------------------------------------------------


def begin_set(set_dir, settings, advice="Delete that folder, or choose another --data_dir."):
    """Starts a set or takes up an unfinished one.

    Args:
      settings: dict of JSON values: all that determines the content.
      advice: what the user should do if the set is there with other settings.

    Returns:
      True if there is something left to write.
    """
    info_path = os.path.join(set_dir, "info.json")
    if not tf.io.gfile.exists(info_path):
        with explain_refusal(set_dir):
            tf.io.gfile.makedirs(set_dir)
            files.write_json(info_path, {"complete": False, "settings": settings})
        return True
    info = files.read_json(info_path)
    _check_settings(set_dir, info["settings"], settings, advice)
    if info["complete"]:
        _remove_leftovers(set_dir)  # of a process that was killed when all but this was done
    return not info["complete"]


def write_shard(set_dir, shard, num_shards, examples):
    """Writes one shard, unless it is already there.

    Args:
      examples: a function without arguments that returns the serialised examples, so that finished shards cost nothing.
    """
    path = shard_path(set_dir, shard, num_shards)
    if tf.io.gfile.exists(_receipt_path(path)):
        return
    temporary, count = f"{path}.tmp-{os.getpid()}", 0
    try:
        with explain_refusal(set_dir):
            with tf.io.TFRecordWriter(temporary) as writer:
                for example in examples():
                    writer.write(example)
                    count += 1
            receipt = {"name": os.path.basename(path), "num_examples": count}
            receipt |= {"num_bytes": tf.io.gfile.stat(temporary).length, "sha256": files.checksum(temporary)}
            tf.io.gfile.rename(temporary, path, overwrite=True)
            files.write_json(_receipt_path(path), receipt)
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)


def finish_set(set_dir, num_shards):
    """Completes info.json once every shard is there; another worker may still be at some.

    Returns:
      True if the set is complete.
    """
    info_path = os.path.join(set_dir, "info.json")
    receipt_paths = [_receipt_path(shard_path(set_dir, shard, num_shards)) for shard in range(num_shards)]
    try:
        shards = [files.read_json(path) for path in receipt_paths]
    except (FileNotFoundError, tf.errors.NotFoundError):
        # Some are not there yet, or no more: another worker may have completed the set at this moment.
        return files.read_json(info_path)["complete"]
    info = files.read_json(info_path)
    info |= {"complete": True, "num_examples": sum(shard["num_examples"] for shard in shards), "shards": shards}
    with explain_refusal(set_dir):
        files.write_json(info_path, info | {"versions": run_dir.versions()})
    _remove_leftovers(set_dir)
    return True


def _remove_leftovers(set_dir):
    """Deletes what a complete set has no need of: receipts of its shards, and files that a kill left half written."""
    for pattern in ("records-*.json", "records-*.tmp-*"):
        for path in tf.io.gfile.glob(os.path.join(set_dir, pattern)):
            with contextlib.suppress(tf.errors.NotFoundError):  # another worker was faster
                tf.io.gfile.remove(path)


def shard_path(set_dir, shard, num_shards):
    return os.path.join(set_dir, f"records-{shard:05d}-of-{num_shards:05d}.tfrecord")


def _receipt_path(path):
    return path.removesuffix(".tfrecord") + ".json"


def explain_refusal(folder):
    kept = "finished shards are kept, and the same command goes on from them"
    return files.explain_refusal(folder, f"make room there or choose another --data_dir; {kept}.")


# ---- reading --------------------------------------------------------------------------------------------------------


def read_set(set_dir, expected, advice):
    """Finds a complete set and checks it.

    Args:
      expected: dict of settings that the set must have; others may be anything.
      advice: what the user should do if the set is missing, unfinished or another one.
    """
    info_path = os.path.join(set_dir, "info.json")
    if not tf.io.gfile.exists(info_path):
        raise ValueError(f"{set_dir} holds no records. {advice}")
    info = files.read_json(info_path)
    _check_settings(set_dir, info["settings"], expected, advice)
    if not info["complete"]:
        raise ValueError(f"{set_dir} is unfinished: its preprocessing was stopped. {advice}")
    paths = [os.path.join(set_dir, shard["name"]) for shard in info["shards"]]
    for path, shard in zip(paths, info["shards"]):
        num_bytes = tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else 0
        if num_bytes != shard["num_bytes"]:
            raise ValueError(f"{path} has {num_bytes} bytes, expected {shard['num_bytes']}: delete {set_dir}. {advice}")
    return RecordSet(set_dir, paths, info["num_examples"], info["settings"])


def read_copies(set_dirs, expected, advice, how_to_write):
    """Finds the complete sets of all copies of an augmentation.

    Args:
      set_dirs: folders of copies 0, 1, 2, …
      how_to_write: the command that writes them, for the case that some are missing.
    """
    written = list(itertools.takewhile(tf.io.gfile.exists, set_dirs))
    if len(written) < len(set_dirs):
        raise ValueError(
            f"aug_copy={len(set_dirs)}, but {os.path.dirname(set_dirs[0])} has {len(written)} copies. Write more with "
            f"`{how_to_write} --aug_copy={len(set_dirs)}` and the same data flags, or train with a smaller --aug_copy."
        )
    return [read_set(set_dir, expected, advice) for set_dir in set_dirs]


def _check_settings(set_dir, found, expected, advice):
    different = [
        f"{name}: found {found.get(name)!r}, expected {value!r}"
        for name, value in expected.items()
        if found.get(name) != value
    ]
    if different:
        raise ValueError(f"{set_dir} holds records of other settings ({'; '.join(different)}). {advice}")
