"""The user's own images, decoded once into the folder of the records, from where each process reads what it needs.

data_dir/decoded/images.bin has training images, other unlabelled images and test images one after the other.
"""

import collections
import dataclasses
import hashlib
import itertools
import os
from typing import NamedTuple

import numpy as np
import PIL
from tqdm import tqdm

from image.datasets.source import Source, describe, parse_facts
from utils import files, locks, records

MIN_SIZE, MAX_SIZE, MAX_DEFAULT_SIZE = 8, 512, 224
SPLITS = ("train", "unlabeled", "test")
WRITTEN = ("images.bin", "labels.npy", "info.json")
NUM_SHOWN = 5


def open_decoded(name, splits, data_dir, image_size=0, flip=False):
    """Decodes all images into data_dir, unless that was done already. Returns the Source.

    Args:
      name: task_name of the records.
      splits: dict from "train" and, if there are such images, "unlabeled" and "test" to folder.ImageFolder or
        arrays.ArrayFile.
      image_size: 0 chooses one, see choose_image_size.
      flip: whether a mirrored image belongs to the same class.
    """
    check_classes(splits)
    if image_size and not MIN_SIZE <= image_size <= MAX_SIZE:
        raise ValueError(f"image_size={image_size}: expected {MIN_SIZE} to {MAX_SIZE}, or 0 to find it.")
    decoded_dir = os.path.join(data_dir, "decoded")
    info_path = os.path.join(decoded_dir, "info.json")
    identity = identify(splits, image_size, flip)
    with records.explain_refusal(data_dir):
        files.make_folder(decoded_dir)
    # Of several processes, such as the replicas of a preprocessing, one decodes.
    with locks.hold(decoded_dir, "another preprocessing", "wait for its end.", wait=True):
        files.remove_leftovers(*(os.path.join(decoded_dir, name) for name in WRITTEN), skipped_path(data_dir))
        if not is_decoded(data_dir, identity):
            image_size = image_size or choose_image_size(splits)
            with records.explain_refusal(data_dir):
                if files.exists(info_path):
                    files.remove(info_path)  # it would describe what is overwritten now
                info = decode(name, splits, data_dir, image_size, flip)
                files.write_json(info_path, info | {"identity": identity})
        info = read_info(decoded_dir)
    report_skipped(info["num_skipped"], splits, data_dir)
    return Source(info["facts"], DecodedImages(decoded_dir, identity), info["checksums"])


def read_info(decoded_dir):
    """The content of info.json, with Facts."""
    path = os.path.join(decoded_dir, "info.json")
    fields = {"facts": dict, "checksums": dict, "num_skipped": int, "identity": str}
    info = files.check_fields(path, files.read_json(path), fields)
    files.check_fields(f"{path}, checksums", info["checksums"], dict.fromkeys(SPLITS, str))
    return info | {"facts": parse_facts(f"{path}, facts", info["facts"])}


class DecodedImages(NamedTuple):
    """Reads decoded images when called."""

    decoded_dir: str
    identity: str

    def __call__(self):
        info, labels_path = read_info(self.decoded_dir), os.path.join(self.decoded_dir, "labels.npy")
        facts, labels = info["facts"], files.read_array(labels_path)
        if info["identity"] != self.identity:
            raise ValueError(f"{self.decoded_dir} was changed by another preprocessing: start again.")
        num_train, num_unlabeled = facts.train_size, facts.train_size + facts.extra_size
        if labels.dtype != np.int64 or labels.shape != (num_unlabeled + facts.test_size,):
            raise ValueError(f"{labels_path} does not fit info.json beside it: delete {self.decoded_dir}.")
        images = _map_images(self.decoded_dir, len(labels), facts.image_size)
        return {
            "train": (images[:num_train], labels[:num_train]),
            "unlabeled": (images[:num_unlabeled], None),  # those with a label, too
            "test": (images[num_unlabeled:], labels[num_unlabeled:]),
        }


def _map_images(decoded_dir, num_images, image_size):
    """All decoded images, of which the system loads into memory what is used."""
    path, num_bytes = os.path.join(decoded_dir, "images.bin"), num_images * image_size**2 * 3
    if files.size(path) != num_bytes:
        raise ValueError(f"{path} has {files.size(path)} bytes, expected {num_bytes}: delete {decoded_dir}.")
    return files.map_array(path, np.uint8, (num_images, image_size, image_size, 3))


# ---- before decoding ------------------------------------------------------------------------------------------------


def check_classes(splits):
    class_names = splits["train"].class_names
    if len(class_names) < 2:
        raise ValueError(f"the training data have the classes {list(class_names)}: expected at least two.")
    unknown = sorted(set(splits["test"].class_names) - set(class_names)) if "test" in splits else []
    if unknown:
        raise ValueError(f"the test data have the classes {unknown}, which the training data {list(class_names)} lack.")


def identify(splits, image_size, flip):
    """A checksum that changes when files or flags change."""
    digest = hashlib.sha256(f"{PIL.__version__} {image_size} {flip}".encode())
    for split, images in splits.items():
        for line in (split, *images.class_names, images.checksum):
            digest.update(f"{line}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def is_decoded(data_dir, identity):
    paths = [os.path.join(data_dir, "decoded", name) for name in ("images.bin", "labels.npy", "info.json")]
    if not all(map(files.exists, [skipped_path(data_dir), *paths])):
        return False
    return read_info(os.path.join(data_dir, "decoded"))["identity"] == identity


def choose_image_size(splits):
    """The size of the images if all of them are squares of one size from 8 to 512 pixels. Otherwise the median of their
    shorter sides, rounded down to a multiple of 8, at least 8 and at most 224."""
    sizes = np.array([size for images in splits.values() for size in images.sizes()])
    if not len(sizes):
        raise ValueError("none of the images can be read.")
    if np.all(sizes == sizes[0, 0]) and MIN_SIZE <= sizes[0, 0] <= MAX_SIZE:
        return int(sizes[0, 0])
    image_size = int(np.clip(np.median(sizes.min(axis=1)) // 8 * 8, MIN_SIZE, MAX_DEFAULT_SIZE))
    low, high = sizes.min(axis=0), sizes.max(axis=0)
    found = f"{low[0]}×{low[1]} to {high[0]}×{high[1]} pixels"
    print(f"the images have {found}: image_size={image_size} is used; --image_size sets another one.")
    return image_size


# ---- decoding -------------------------------------------------------------------------------------------------------

# What was written so far: numbers of images and checksums by split, the class of each image or -1, and what was not.
Written = collections.namedtuple("Written", "counts labels skipped checksums")


def decode(name, splits, data_dir, image_size, flip):
    """Writes images.bin, labels.npy and unreadable_images.txt. Returns what info.json is to hold."""
    decoded_dir, written = os.path.join(data_dir, "decoded"), Written({}, [], [], {})
    with files.replacing(os.path.join(decoded_dir, "images.bin"), "wb") as file:
        write_images(file, splits, image_size, written)
    with files.replacing(os.path.join(decoded_dir, "labels.npy"), "wb") as file:
        np.save(file, np.array(written.labels, np.int64))
    with files.replacing(skipped_path(data_dir), "wb") as file:  # names of files may be any bytes
        file.writelines(f"{line}\n".encode(errors="surrogateescape") for line in written.skipped)
    check_counts(splits, written.counts, written.labels, data_dir)
    images = _map_images(decoded_dir, len(written.labels), image_size)
    num_train, num_unlabeled, num_test = (written.counts[split] for split in SPLITS)
    sizes = {"train_size": num_train, "test_size": num_test, "extra_size": num_unlabeled}
    not_tested, class_names = images[: num_train + num_unlabeled], splits["train"].class_names
    order = "numpy_seed_0"  # files are in the order of their classes
    facts = describe(name, not_tested, class_names, flip, **sizes, label_order=order)
    return {"facts": dataclasses.asdict(facts), "checksums": written.checksums, "num_skipped": len(written.skipped)}


def write_images(file, splits, image_size, written):
    """Writes the pixels of all splits one after the other, and adds to `written`."""
    numbers = {class_name: number for number, class_name in enumerate(splits["train"].class_names)}
    labels, digest = written.labels, hashlib.sha256()
    for split in SPLITS:
        first = len(labels)
        # Unlabelled are the training images, too: their checksum goes on from that of the training images.
        digest = hashlib.sha256() if split == "test" else digest
        for image, image_name, label in _read_split(splits.get(split), split, image_size):
            if isinstance(image, ValueError):
                written.skipped.append(f"{image_name}\t{image}")
                continue
            content = image.tobytes()
            file.write(content)
            digest.update(content)
            labels.append(-1 if label is None else numbers[label])
        written.counts[split] = len(labels) - first
        written.checksums[split] = hashlib.sha256(digest.digest() + bytes(str(labels[first:]), "ascii")).hexdigest()


def _read_split(images, split, image_size):
    """Yields (image or error, its name, its label)."""
    if images is None:
        return
    positions, labels = range(images.num_images), images.labels or itertools.repeat(None)
    read = tqdm(images.read(image_size, positions), f"reading {split} images", images.num_images, unit="image")
    yield from zip(read, map(images.name, positions), labels)


def check_counts(splits, counts, labels, data_dir):
    where = f"unreadable images are listed in {skipped_path(data_dir)}"
    found = set(labels[: counts["train"]])
    for number, class_name in enumerate(splits["train"].class_names):
        if number not in found:
            raise ValueError(
                f"the class {files.shorten(class_name)} has no image that can be read among the training data: add "
                f"some, or remove its folder ({where})."
            )
    for split in splits:
        if not counts[split]:
            raise ValueError(f"none of the {split} images can be read ({where}).")


# ---- what could not be read -----------------------------------------------------------------------------------------


def skipped_path(data_dir):
    return os.path.join(data_dir, "unreadable_images.txt")


def report_skipped(num_skipped, splits, data_dir):
    num_ignored = sum(images.num_ignored for images in splits.values())
    if num_ignored:
        print(f"{num_ignored} files were left alone: their names do not end like images.")
    if not num_skipped:
        return
    path = skipped_path(data_dir)
    print(f"{num_skipped} images cannot be read and are left out; all are listed in {path}:")
    with files.open_file(path, "rb") as file:
        for line in itertools.islice(file, NUM_SHOWN):
            print("  " + line.decode(errors="replace").rstrip("\n").split("\t")[-1])
