"""Reads ImageNet's files once, before training: what is there, and what of it cannot be decoded.

    python -m image.imagenet_index --data_dir=data/imagenet --workers=8
    python -m image.imagenet_index --data_dir=data/more_images --unlabeled

The result is index.json in data_dir. docs/images.md tells of the two layouts, shards and folders, and of images that
cannot be decoded; all else that is wrong with the files is an error.
"""

import io
import os
import re
import sys

import numpy as np
import tensorflow as tf
from absl import flags
from PIL import Image
from tqdm import tqdm

from image.datasets import image_files
from utils import cli, files, records, work

FLAGS = flags.FLAGS
SPLITS = ("train", "validation")
FOLDERS = {"train": ("train",), "validation": ("val", "validation")}
IMAGE_ENDINGS = (".jpeg", ".jpg", ".png")
SHARD_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})")
SKIPPED = -1  # the label of an image that cannot be decoded
UNKNOWN = 0  # the label of all others in an unlabelled set
FILES_PER_JOB = 256


def decode(encoded):
    """Decodes an image of any format that TensorFlow knows, whatever its file is called: uint8 [height, width, 3].

    ImageNet has 22 JPEGs in CMYK, which become RGB, and one PNG that is called JPEG.
    """
    return tf.io.decode_image(encoded, channels=3, expand_animations=False)


# ---- the index ------------------------------------------------------------------------------------------------------


def index_path(data_dir):
    return os.path.join(data_dir, "index.json")


def read_index(data_dir, unlabeled=False):
    """The content of index.json, a dict:

    layout: "shards" or "folders".
    class_names: list, empty in an unlabelled set.
    splits: dict from "train" and "validation", or "unlabeled", to a dict of lists with an entry for each file: its name
      below data_dir, num_bytes, and labels, a list with an entry for each image.
    skipped: list of dicts: file, record, reason.
    """
    command = f"python -m image.imagenet_index --data_dir={data_dir}{' --unlabeled' if unlabeled else ''}"
    path = index_path(data_dir)
    if not tf.io.gfile.exists(path):
        raise ValueError(f"{path} does not exist. Check the images once, with `{command}`.")
    index = _check_index(path, files.read_json(path), f"write it again, with `{command}`.")
    if unlabeled != ("unlabeled" in index["splits"]):
        found, expected = ("a labelled", "an unlabelled") if unlabeled else ("an unlabelled", "a labelled")
        raise ValueError(f"{path} describes {found} set, expected {expected} one. Write it again, with `{command}`.")
    if index["layout"] == "shards":
        for split in index["splits"].values():
            _check_sizes(data_dir, split, command)
    return index


def _check_index(path, index, advice):
    """Refuses what write_index has not written."""
    fields = {"layout": str, "class_names": [str], "splits": dict, "skipped": [dict]}
    files.check_fields(path, index, fields, advice=advice)
    expected = [{"unlabeled"}, set(SPLITS)]
    if index["layout"] not in ("shards", "folders") or set(index["splits"]) not in expected:
        raise ValueError(
            f"{path}: layout={files.shorten(index['layout'])}, splits={files.shorten(list(index['splits']))}; {advice}"
        )
    highest = UNKNOWN if "unlabeled" in index["splits"] else len(index["class_names"]) - 1
    for name, split in index["splits"].items():
        where = f"{path}, {name}"
        files.check_fields(where, split, {"files": [str], "num_bytes": [int], "labels": [list]}, advice=advice)
        labels = [label for labels in split["labels"] for label in labels]
        fits = all(type(label) is int and SKIPPED <= label <= highest for label in labels)
        if not (fits and len(split["files"]) == len(split["num_bytes"]) == len(split["labels"])):
            raise ValueError(f"{where}: files and labels do not fit each other and the classes; {advice}")
        if max(labels, default=SKIPPED) == SKIPPED:
            raise ValueError(f"{where}: there is no image that can be used; {advice}")
    return index


def _check_sizes(data_dir, split, command):
    for name, expected in zip(split["files"], split["num_bytes"]):
        path = os.path.join(data_dir, name)
        found = tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else 0
        if found != expected:
            raise ValueError(f"{path} has {found} bytes, but {expected} when it was checked. Run `{command}` again.")


def write_index(data_dir, unlabeled=False, num_classes=1000, workers=1):
    """Checks all images below data_dir, writes index.json and returns its content.

    Args:
      num_classes: how many there are in shards; folders tell it themselves.
    """
    layout, file_names = find_files(data_dir, unlabeled)
    index = {"layout": layout, "class_names": [], "splits": {}, "skipped": []}
    if layout == "folders" and not unlabeled:
        index["class_names"] = find_class_folders(data_dir, file_names)
    synsets, num_labels = {}, 0 if unlabeled else num_classes
    with work.start_processes(workers) as ordered_map:
        for split, names in file_names.items():
            function, jobs = _create_jobs(data_dir, layout, names, index["class_names"], num_labels)
            index["splits"][split] = {"files": [], "num_bytes": [], "labels": []}
            for found, skipped, synsets_found in tqdm(ordered_map(function, jobs), split, len(jobs), disable=None):
                for key, values in found.items():
                    index["splits"][split][key] += values
                index["skipped"] += skipped
                synsets |= synsets_found
    if layout == "shards" and not unlabeled:
        index["class_names"] = [synsets.get(label, str(label + 1)) for label in range(num_classes)]
    check_classes(data_dir, index)
    with records.explain_refusal(data_dir):
        files.write_json(index_path(data_dir), index)
    return index


def _create_jobs(data_dir, layout, names, class_names, num_classes):
    """Returns the function that does a job, and the jobs."""
    if layout == "shards":
        return check_shard, [(data_dir, name, num_classes) for name in names]
    numbers = {name: number for number, name in enumerate(class_names)}
    labels = [numbers[_class_of(name)] if class_names else UNKNOWN for name in names]
    parts = [slice(start, start + FILES_PER_JOB) for start in range(0, len(names), FILES_PER_JOB)]
    return check_image_files, [(data_dir, names[part], labels[part]) for part in parts]


def count_classes(index, split):
    """Number of decodable images of each class: int64 [num_classes]."""
    labels = np.concatenate([np.asarray(labels, np.int64) for labels in index["splits"][split]["labels"]])
    return np.bincount(labels[labels != SKIPPED], minlength=max(len(index["class_names"]), 1))


def check_classes(data_dir, index):
    for split in index["splits"]:
        if not count_classes(index, split).sum():
            raise ValueError(f"data_dir={data_dir}: none of the {split} images can be decoded.")
    if "train" not in index["splits"]:
        return
    empty = np.flatnonzero(count_classes(index, "train") == 0)
    if len(empty):
        names = files.join_names(index["class_names"][label] for label in empty)
        raise ValueError(
            f"data_dir={data_dir}: {len(empty)} of {len(index['class_names'])} classes have no training image that can "
            f"be decoded ({names}). Add images, or, for shards, give the right --num_classes."
        )


# ---- which files ----------------------------------------------------------------------------------------------------


def find_files(data_dir, unlabeled):
    """Returns the layout and a dict from split to the sorted names of its files below data_dir."""
    shards = _find_shards(data_dir)
    if unlabeled and shards:
        return "shards", {"unlabeled": [name for prefix in sorted(shards) for name in shards[prefix]]}
    if unlabeled:
        return "folders", {"unlabeled": _find_images(data_dir, "")}
    if shards.keys() >= set(SPLITS):
        return "shards", {split: shards[split] for split in SPLITS}
    folders = {split: _existing(data_dir, FOLDERS[split]) for split in SPLITS}
    if all(folders.values()):
        return "folders", {split: _find_images(data_dir, folders[split]) for split in SPLITS}
    raise ValueError(
        f"data_dir={data_dir} holds no ImageNet: expected shards (train-00000-of-01024, validation-00000-of-00128) or "
        f"class folders (train/n01440764/*.JPEG, val/n01440764/*.JPEG), both for training and validation."
    )


def _find_shards(data_dir):
    """dict from prefix to the sorted names of its shards, of which none may be missing."""
    names = sorted(tf.io.gfile.listdir(data_dir)) if tf.io.gfile.isdir(data_dir) else []
    shards = {}
    for match in filter(None, map(SHARD_NAME.fullmatch, names)):
        shards.setdefault(match[1], []).append(match[0])
    for prefix, found in shards.items():
        total = int(SHARD_NAME.fullmatch(found[0])[3])
        missing = [name for name in (f"{prefix}-{n:05d}-of-{total:05d}" for n in range(total)) if name not in found]
        if missing or len(found) != total:
            what = f"{missing[0]} and {len(missing) - 1} more are missing" if missing else f"there are {len(found)}"
            raise ValueError(f"data_dir={data_dir}: expected {total} shards {prefix}-*-of-{total:05d}, but {what}.")
    return shards


def _existing(data_dir, names):
    return next((name for name in names if tf.io.gfile.isdir(os.path.join(data_dir, name))), "")


def _find_images(data_dir, folder):
    """Sorted paths, relative to data_dir, of the image files anywhere below one of its folders."""
    paths = image_files.list_files(os.path.join(data_dir, folder))
    found = [path[len(data_dir) :].lstrip("/") for path in paths if path.lower().endswith(IMAGE_ENDINGS)]
    if not found:
        endings = ", ".join(IMAGE_ENDINGS)
        raise ValueError(f"{os.path.join(data_dir, folder)} has no image files ({endings}) and no shards.")
    return sorted(os.path.normpath(name) for name in found)


def _class_of(name):
    """The class of train/n01440764/n01440764_18.JPEG."""
    return name.split(os.sep)[1]


def find_class_folders(data_dir, file_names):
    """Returns the sorted names of the classes, which must be at least two and have images."""
    in_no_folder = [name for names in file_names.values() for name in names if name.count(os.sep) < 2]
    if in_no_folder:
        raise ValueError(
            f"data_dir={data_dir}: {len(in_no_folder)} images, such as {in_no_folder[0]}, lie in no folder of a class. "
            "Sort them into such folders, as train/n01440764 and val/n01440764."
        )
    class_names = sorted({_class_of(name) for name in file_names["train"]})
    _, folders, _ = next(files.walk(os.path.join(data_dir, "train")))
    without = sorted(name for name in set(folders) - set(class_names) if not name.startswith("."))
    if without or len(class_names) < 2:
        found = f"{without[0]!r} has none" if without else f"there is {class_names[0]!r} alone"
        raise ValueError(f"{data_dir}/train: expected two folders of classes or more, with images in each; {found}.")
    unknown = sorted({_class_of(name) for name in file_names["validation"]} - set(class_names))
    if unknown:
        raise ValueError(
            f"data_dir={data_dir}: {len(unknown)} classes of the validation images, such as {unknown[0]!r}, have no "
            "folder in train. Sort the validation images into the folders of their classes."
        )
    return class_names


# ---- which images ---------------------------------------------------------------------------------------------------


def check_image_files(job):
    """Decodes image files. Returns what index.json says of them, the skipped ones, and {} for the names of classes."""
    data_dir, names, labels = job
    num_bytes, found, skipped = [], [], []
    for name, label in zip(names, labels):
        with tf.io.gfile.GFile(os.path.join(data_dir, name), "rb") as file:
            encoded = file.read()
        reason = why_undecodable(encoded)
        num_bytes.append(len(encoded))
        found.append([SKIPPED if reason else label])
        skipped += [_report_skipped(name, 0, reason)] if reason else []
    return {"files": names, "num_bytes": num_bytes, "labels": found}, skipped, {}


def check_shard(job):
    """Decodes the images of one shard; returns as check_image_files, with names of classes.

    num_classes in the job is 0 for shards without labels.
    """
    data_dir, name, num_classes = job
    path, labels, skipped, synsets = os.path.join(data_dir, name), [], [], {}
    for position, record in enumerate(_read_shard(path)):
        features = _parse_features(path, position, record)
        encoded = _first_value(features, "image/encoded", "bytes_list")
        label = _first_value(features, "image/class/label", "int64_list") if num_classes else UNKNOWN + 1
        if encoded is None or label is None:
            missing = "image/encoded" if encoded is None else "image/class/label"
            raise ValueError(
                f"{path}, record {position}, has no {missing}: it has {files.join_names(sorted(features))}."
            )
        if num_classes and not 1 <= label <= num_classes:
            raise ValueError(
                f"{path}, record {position}: image/class/label={label}, expected 1 to {num_classes}. If there are "
                "other classes than ImageNet's 1000, give --num_classes; labels count from 1."
            )
        reason = why_undecodable(encoded)
        labels.append(SKIPPED if reason else label - 1)
        skipped += [_report_skipped(name, position, reason)] if reason else []
        synset = _first_value(features, "image/class/synset", "bytes_list")
        if synset and num_classes:
            synsets[label - 1] = synset.decode(errors="replace")
    return {"files": [name], "num_bytes": [tf.io.gfile.stat(path).length], "labels": [labels]}, skipped, synsets


def _read_shard(path):
    position = 0
    try:
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            yield record
            position += 1
    except tf.errors.OpError as error:  # DataLossError, or what a folder in its place raises
        raise ValueError(
            f"{path} is damaged after {position} records ({files.reason_of(error)}): write it again."
        ) from error


def _parse_features(path, position, record):
    try:
        return dict(tf.train.Example.FromString(record).features.feature)
    except Exception as error:  # protobuf's DecodeError has another place in each version
        raise ValueError(
            f"{path}, record {position}, is no tf.train.Example ({files.reason_of(error)}): write it again."
        ) from error


def _first_value(features, name, kind):
    values = getattr(features[name], kind).value if name in features else []
    return values[0] if values else None


def why_undecodable(encoded):
    """Returns the reason why `decode` fails, or "". What is far too large is not even tried."""
    if reason := _why_too_large(encoded):
        return reason
    try:
        decode(encoded)
    except (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError) as error:  # the last: an absurd size
        return re.sub(r"\{\{.*?\}\} |\s*\[Op:.*", "", error.message)
    return ""


def _why_too_large(encoded):
    """Returns the reason why an image should not be decoded, or ""."""
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            width, height = image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        return str(error)
    except Exception:  # Pillow does not know it; TensorFlow may
        return ""
    too_large = width * height > image_files.MAX_PIXELS
    return f"{width}×{height} pixels, expected at most {image_files.MAX_PIXELS:,}" if too_large else ""


def _report_skipped(name, record, reason):
    print(f"skipped {name}, record {record}: {reason}", file=sys.stderr)
    return {"file": name, "record": record, "reason": reason}


# ---- command line ---------------------------------------------------------------------------------------------------


def define_flags():
    flags.DEFINE_string("data_dir", None, "Folder of the shards or of the class folders.", required=True)
    flags.DEFINE_bool("unlabeled", False, "The folder holds images without labels, for --unlabeled_dir of image.main.")
    flags.DEFINE_integer("num_classes", 1000, "Shards: the number of classes.", lower_bound=2)
    flags.DEFINE_integer("workers", os.cpu_count(), "Number of processes.", lower_bound=1)


def main():
    index = write_index(FLAGS.data_dir, FLAGS.unlabeled, FLAGS.num_classes, FLAGS.workers)
    for split in index["splits"]:
        counts = count_classes(index, split)
        classes = f", {counts.min()} to {counts.max()} in each of {len(counts)} classes" if split in SPLITS else ""
        print(f"{split}: {counts.sum()} images{classes}")
    print(f"skipped: {len(index['skipped'])} images. The index is {index_path(FLAGS.data_dir)}")


if __name__ == "__main__":
    cli.run(main, define_flags)
