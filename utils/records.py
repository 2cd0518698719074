"""Sets of TFRecord shards that are written once, resumed after a kill, and checked when read.

A set is a folder: shards `records-00000-of-00013.tfrecord` and `info.json`. A shard gets its name only when it is
whole; `info.json` holds the settings from the start, and the counts, sizes and checksums when all shards are there.
"""

import collections
import concurrent.futures
import contextlib
import functools
import hashlib
import itertools
import os
import re
import uuid

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from utils import files, run_dir
from utils.varint import write_varint

RecordSet = collections.namedtuple("RecordSet", "directory paths num_examples settings sha256")
SHARD_NAME = re.compile(r"records-\d{5}-of-\d{5}\.tfrecord")
SHARD_FIELDS = {"name": str, "num_examples": int, "num_bytes": int, "sha256": str}
CHECKS_AT_ONCE = 4  # shards whose checksums are computed at the same time


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
    return b"\x0a" + write_varint(len(body)) + body  # Example.features


@functools.lru_cache(maxsize=65536)
def _bytes_prefix(name, length):
    """What goes before the payload: map entry { key = name, value = Feature { bytes_list { value = payload } } }."""
    prefix = b"\x0a" + write_varint(length)  # BytesList.value
    prefix = b"\x0a" + write_varint(len(prefix) + length) + prefix  # Feature.bytes_list
    prefix = b"\x12" + write_varint(len(prefix) + length) + prefix  # the entry's value
    prefix = _message(b"\x0a", name.encode()) + prefix  # the entry's key
    return b"\x0a" + write_varint(len(prefix) + length) + prefix  # Features.feature


@functools.lru_cache(maxsize=65536)
def _int_entry(name, value):
    if not 0 <= value < 2**63:
        raise ValueError(f"feature {name!r}={value}: only integers from 0 to 2**63 - 1 can be stored.")
    feature = _message(b"\x1a", _message(b"\x0a", write_varint(value)))  # Feature.int64_list { value, packed }
    return _message(b"\x0a", _message(b"\x0a", name.encode()) + _message(b"\x12", feature))


def _message(tag, payload):
    return tag + write_varint(len(payload)) + payload


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
            # If another process was faster, its settings count.
            if files.create_json(info_path, {"complete": False, "settings": settings}):
                return True
    info = read_info(set_dir)
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
    # Others, perhaps on other machines, may write the same shard at this moment.
    temporary = f"{path}.tmp-{uuid.uuid4().hex}"
    try:
        with explain_refusal(set_dir):
            receipt = {"name": os.path.basename(path), "num_examples": _write_examples(temporary, examples())}
            receipt |= {"num_bytes": tf.io.gfile.stat(temporary).length, "sha256": files.checksum(temporary)}
            tf.io.gfile.rename(temporary, path, overwrite=True)
            files.write_json(_receipt_path(path), receipt)
    except ValueError:
        if not _is_complete(set_dir):  # else another process has finished the set, and tidied up
            raise
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)


def _is_complete(set_dir):
    try:
        return read_info(set_dir)["complete"]
    except (ValueError, *files.file_errors()):
        return False


def _write_examples(path, examples):
    """Returns their number."""
    count = 0
    with tf.io.TFRecordWriter(path) as writer:
        for example in examples:
            writer.write(example)
            count += 1
    return count


def finish_set(set_dir, num_shards):
    """Completes info.json once every shard is there; another worker may still be at some.

    Returns:
      True if the set is complete.
    """
    info_path = os.path.join(set_dir, "info.json")
    receipt_paths = [_receipt_path(shard_path(set_dir, shard, num_shards)) for shard in range(num_shards)]
    try:
        shards = [files.check_fields(path, files.read_json(path), SHARD_FIELDS) for path in receipt_paths]
    except (FileNotFoundError, tf.errors.NotFoundError):
        # Some are not there yet, or no more: another worker may have completed the set at this moment.
        return read_info(set_dir)["complete"]
    info = read_info(set_dir)
    info |= {"complete": True, "num_examples": sum(shard["num_examples"] for shard in shards), "shards": shards}
    try:
        with explain_refusal(set_dir):
            files.write_json(info_path, info | {"versions": run_dir.versions()})
    except ValueError:
        if not _is_complete(set_dir):  # else another process has done the same, and tidied up
            raise
    _remove_leftovers(set_dir)
    return True


def _remove_leftovers(set_dir):
    """Deletes what a complete set has no need of: receipts of its shards, and files that a kill left half written."""
    for pattern in ("records-*.json", "*.tmp-*"):
        for path in files.find(set_dir, pattern):
            with contextlib.suppress(FileNotFoundError, tf.errors.NotFoundError):  # another worker was faster
                files.remove(path)


def shard_path(set_dir, shard, num_shards):
    return os.path.join(set_dir, f"records-{shard:05d}-of-{num_shards:05d}.tfrecord")


def _receipt_path(path):
    return path.removesuffix(".tfrecord") + ".json"


def explain_refusal(folder):
    kept = "finished shards are kept, and the same command goes on from them"
    return files.explain_refusal(folder, f"make room there or choose another --data_dir; {kept}.")


# ---- reading --------------------------------------------------------------------------------------------------------


def read_info(set_dir):
    """The content of info.json, whose parts fit together."""
    path = os.path.join(set_dir, "info.json")
    info = files.check_fields(path, files.read_json(path), {"complete": bool, "settings": dict})
    if not info["complete"]:
        return info
    files.check_fields(path, info, {"num_examples": int, "shards": [dict]})
    for number, shard in enumerate(info["shards"]):
        files.check_fields(f"{path}: shards[{number}]", shard, SHARD_FIELDS)
        if not SHARD_NAME.fullmatch(shard["name"]):
            raise ValueError(f"{path}: name={files.shorten(shard['name'])} is no name of a shard; {files.RESTORE}")
    in_shards = sum(shard["num_examples"] for shard in info["shards"])
    if info["num_examples"] != in_shards:
        raise ValueError(
            f"{path}: num_examples={info['num_examples']}, but the shards have {in_shards}; {files.RESTORE}"
        )
    return info


def read_set(set_dir, expected, advice, verify=True):
    """Finds a complete set and checks it.

    Args:
      expected: dict of settings that the set must have; others may be anything.
      advice: what the user should do if the set is missing, unfinished or another one.
      verify: compare the whole content with checksums and counts; False: unless that was done on this machine before.
    """
    if not tf.io.gfile.exists(os.path.join(set_dir, "info.json")):
        raise ValueError(f"{set_dir} holds no records. {advice}")
    info = read_info(set_dir)
    _check_settings(set_dir, info["settings"], expected, advice)
    if not info["complete"]:
        raise ValueError(f"{set_dir} is unfinished: its preprocessing was stopped. {advice}")
    if not info["num_examples"]:
        raise ValueError(f"{set_dir} has no examples: delete it. {advice}")
    paths = [os.path.join(set_dir, shard["name"]) for shard in info["shards"]]
    for path, shard in zip(paths, info["shards"]):
        num_bytes = tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else 0
        if num_bytes != shard["num_bytes"]:
            raise ValueError(f"{path} has {num_bytes} bytes, expected {shard['num_bytes']}: delete {set_dir}. {advice}")
    _verify(set_dir, paths, info["shards"], advice, verify)
    checksum = files.checksum_of(shard["sha256"].encode() for shard in info["shards"])
    return RecordSet(set_dir, paths, info["num_examples"], info["settings"], checksum)


def identify(data):
    """What utils.training.Job has as `data`: checksums of the RecordSets, or others with a sha256, in data.sup and
    data.unsup."""
    parts = {"labelled": data.sup, "unlabelled": data.unsup}
    return {
        name: files.checksum_of(record_set.sha256.encode() for record_set in part)
        for name, part in parts.items()
        if part
    }


def _verify(set_dir, paths, shards, advice, always):
    """Compares the content of shards with their checksums, and counts what they hold."""
    note = _note_path(paths, shards)
    if os.path.exists(note) and not always:
        return
    with concurrent.futures.ThreadPoolExecutor(CHECKS_AT_ONCE) as executor:
        found = tqdm(executor.map(_inspect, paths, shards), f"checking {set_dir}", len(paths), delay=3, disable=None)
        for values, path, shard in zip(found, paths, shards):
            for name, value in values.items():
                if value != shard[name]:
                    raise ValueError(
                        f"{path} is damaged or was changed: {name}={value}, expected {str(shard[name])[:80]}: delete "
                        f"{set_dir}. {advice}"
                    )
    with contextlib.suppress(OSError):  # then it is checked again the next time
        os.makedirs(os.path.dirname(note), exist_ok=True)
        open(note, "w").close()


def _inspect(path, shard):
    """What there is in a shard; its records are counted if they are known to be as they were written."""
    values = {"sha256": files.checksum(path)}
    if values["sha256"] == shard["sha256"]:
        values["num_examples"] = count_records(path)
    return values


def count_records(path):
    try:
        return int(tf.data.TFRecordDataset(path).reduce(np.int64(0), lambda count, _: count + 1))
    except tf.errors.OpError as error:
        raise ValueError(
            f"{path} is damaged ({_reason(error)}): delete {os.path.dirname(path)} and write it again, with the same "
            "command as before."
        ) from error


def _note_path(paths, shards):
    """An empty file with this name tells that shards, which were not written since, have been checked."""
    cache = os.environ.get("UDA_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "uda")
    digest = hashlib.sha256()
    for path, shard in zip(paths, shards):
        path = path if "://" in path else os.path.realpath(path)
        status = tf.io.gfile.stat(path)
        digest.update(repr((path, status.length, status.mtime_nsec, sorted(shard.items()))).encode(errors="replace"))
    return os.path.join(cache, "checked_records", digest.hexdigest())


@contextlib.contextmanager
def explain_damage(record_sets):
    """Turns TensorFlow's error about a damaged shard, which does not name it, into a ValueError that does.

    Args:
      record_sets: RecordSets, or others with paths of TFRecord files, that are read in the block.
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        for path in dict.fromkeys(path for record_set in record_sets for path in record_set.paths):
            count_records(path)
        raise ValueError(f"a shard could not be read ({_reason(error)}), but can be now: is the disk sound?") from error
    except tf.errors.NotFoundError as error:  # TensorFlow has a stack of its own operations before the name
        paths = (path for record_set in record_sets for path in record_set.paths)
        missing = next((path for path in paths if not files.exists(path)), None)
        if missing is None:
            raise
        raise ValueError(f"{missing} was there when the data were prepared: prepare them again.") from error


def _reason(error):
    """TensorFlow's message without the names of its operations."""
    return re.sub(r"\{\{.*?\}\}\s*|\s*\[(Op:|\[).*", "", error.message, flags=re.DOTALL)


def read_copies(set_dirs, expected, advice, how_to_write, verify=False):
    """Finds the complete sets of all copies of an augmentation.

    Args:
      set_dirs: folders of copies 0, 1, 2, …
      how_to_write: the command that writes them, for the case that some are missing.
      expected, advice, verify: see read_set.
    """
    written = list(itertools.takewhile(tf.io.gfile.exists, set_dirs))
    if len(written) < len(set_dirs):
        raise ValueError(
            f"aug_copy={len(set_dirs)}, but {os.path.dirname(set_dirs[0])} has {len(written)} copies. Write more with "
            f"`{how_to_write} --aug_copy={len(set_dirs)}` and the same data flags, or train with a smaller --aug_copy."
        )
    return [read_set(set_dir, expected, advice, verify) for set_dir in set_dirs]


def read_rows(set_dir, rows, advice):
    """Some records of a set, by their numbers in it and in that order: a tensor of serialised records [rows]."""
    record_set, wanted = read_set(set_dir, {}, advice, verify=False), tf.constant(rows, tf.int64)
    numbered = tf.data.TFRecordDataset(record_set.paths).enumerate()
    found = {int(row): record for row, record in numbered.filter(lambda row, _: tf.reduce_any(row == wanted))}
    if len(found) < len(set(rows)):
        raise ValueError(f"{set_dir} has {record_set.num_examples} examples, none with the number {max(rows)}.")
    return tf.stack([found[row] for row in rows])


def _check_settings(set_dir, found, expected, advice):
    different = [
        f"{name}: found {files.shorten(found.get(name))}, expected {files.shorten(value)}"
        for name, value in expected.items()
        if found.get(name) != value
    ]
    if different:
        raise ValueError(f"{set_dir} holds records of other settings ({'; '.join(different)}). {advice}")
