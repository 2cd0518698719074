"""The user's own images, in class folders or in .npz files, made ready for image.preprocess.

    folders: train_dir/<class>/…/*.jpg, unlabeled_dir/…/*.jpg, test_dir/<class>/…/*.jpg    (see image.image_files)
    files:   train_file.npz with images, uint8 [n, height, width, 3] or [n, height, width, 1] or [n, height, width],
             and labels, integers from 0 or strings; unlabeled_file.npz with images; test_file.npz like train_file

Images are decoded one by one into output_dir/decoded/images.bin: training images, other unlabelled images, test images.
From there each process reads what it writes at the moment, so that memory holds the paths and labels, a few hundred
decoded images, and no more than that when there are more images; of an .npz file, one array at a time. The folder may
be deleted when the records are written; it takes 3 · image_size² bytes for each image.

Images that cannot be read are left out, and listed with the reason in output_dir/unreadable_images.txt.
"""

import collections
import concurrent.futures
import dataclasses
import hashlib
import itertools
import os
import zipfile
import zlib

import numpy as np
import PIL
from PIL import Image
from tqdm import tqdm

from image import image_files
from image.datasets import Facts, channel_statistics
from utils import records, run_dir

MIN_SIZE, MAX_SIZE, MAX_DEFAULT_SIZE = 8, 512, 224
TASKS = ("folder", "npz")
SPLITS = ("train", "unlabelled", "test")
NUM_SHOWN = 5

# What preprocess needs: facts, a picklable function that returns the arrays, and a checksum of each split's content.
Prepared = collections.namedtuple("Prepared", "facts read_arrays checksums")


# ---- folders --------------------------------------------------------------------------------------------------------


class FolderSplit:
    """Image files and the names of their classes, None for unlabelled ones."""

    def __init__(self, folder, flag, labelled):
        if not os.path.isdir(folder):
            raise ValueError(f"{flag}={folder!r} is no folder: expected images in it.")
        self.class_names = _class_folders(folder, flag) if labelled else ()
        self.names = image_files.find_images(folder)
        self.labels = [os.path.relpath(path, folder).split(os.sep)[0] for path in self.names] if labelled else None
        self.num_ignored = sum(1 for _ in image_files.list_files(folder)) - len(self.names)
        if not self.names:
            raise ValueError(f"{flag}={folder!r} has no image files ({', '.join(image_files.IMAGE_ENDINGS)}).")

    def identity(self):
        for name in self.names:
            status = os.stat(name) if os.path.exists(name) else None  # a broken link
            yield f"{name} {status and (status.st_size, status.st_mtime_ns)}"

    def sizes(self):
        with concurrent.futures.ThreadPoolExecutor() as executor:
            return [size for size in executor.map(image_files.read_size, self.names) if size]

    def read(self, image_size):
        """Yields each image, or the ValueError that tells why it cannot be read."""

        def read_one(path):
            try:
                return image_files.read_image(path, image_size)
            except ValueError as error:
                return error

        names = iter(self.names)
        with concurrent.futures.ThreadPoolExecutor() as executor:  # Pillow decodes without holding Python's lock
            while part := list(itertools.islice(names, 256)):
                yield from executor.map(read_one, part)


def _class_folders(folder, flag):
    outside = [entry.name for entry in os.scandir(folder) if entry.is_file() and image_files.is_image(entry.name)]
    if outside:
        raise ValueError(
            f"{flag}={folder!r} has {len(outside)} images that lie in no class folder, such as {min(outside)}: "
            "move them into a folder with the name of their class, or into unlabeled_dir."
        )
    return tuple(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != "."))


def open_folders(train_dir, unlabeled_dir="", test_dir=""):
    """Returns a dict from split to FolderSplit."""
    folders = {"train_dir": train_dir, "unlabeled_dir": unlabeled_dir, "test_dir": test_dir}
    folders = {flag: folder for flag, folder in folders.items() if folder}
    for (flag, folder), (other_flag, other) in itertools.permutations(folders.items(), 2):
        if os.path.join(os.path.realpath(folder), "").startswith(os.path.join(os.path.realpath(other), "")):
            raise ValueError(
                f"{flag}={folder!r} lies in {other_flag}={other!r}: use folders apart. The images of train_dir are "
                "used as unlabelled images anyway."
            )
    if not train_dir:
        raise ValueError("train_dir is not given: expected a folder with a folder of images for each class.")
    return {
        split: FolderSplit(folders[flag], flag, labelled=split != "unlabelled")
        for split, flag in zip(SPLITS, ("train_dir", "unlabeled_dir", "test_dir"))
        if flag in folders
    }


# ---- .npz files -----------------------------------------------------------------------------------------------------


class FileSplit:
    """The arrays of an .npz file; images are read when they are asked for."""

    def __init__(self, path, flag, labelled):
        self.path, self.flag = path, flag
        shape = self._load("images").shape  # all of it, so that a broken file is noticed now
        self.names = [f"{path}[{number}]" for number in range(shape[0])]
        self.labels, self.class_names, self.num_ignored = None, (), 0
        self._size = shape[2], shape[1]
        if labelled:
            labels = check_labels(self._load("labels"), shape[0], f"{flag}={path!r}")
            self.labels, self.class_names = labels.astype(str).tolist(), tuple(np.unique(labels).astype(str).tolist())

    def identity(self):
        status = os.stat(self.path)
        yield f"{self.path} {status.st_size} {status.st_mtime_ns}"

    def sizes(self):
        return [self._size] * len(self.names)

    def read(self, image_size):
        images = self._load("images")
        images = images[..., 0] if images.shape[3:] == (1,) else images
        return (image_files.fit_square(Image.fromarray(image).convert("RGB"), image_size) for image in images)

    def _load(self, key):
        where = f"{self.flag}={self.path!r}"
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                if key not in arrays:
                    raise ValueError(f"its arrays are {', '.join(arrays) or 'none'}, {key} is missing")
                array = arrays[key]
        except (OSError, EOFError, ValueError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
            how = "np.savez(path, images=images, labels=labels)"
            raise ValueError(f"{where} cannot be read ({error}): write it with {how}.") from error
        return check_images(array, where) if key == "images" else array


def check_images(images, where):
    fits = images.ndim == 3 or images.ndim == 4 and images.shape[3] in (1, 3)
    if images.dtype != np.uint8 or not fits or not images.size:
        raise ValueError(
            f"{where} has images of shape={images.shape} and dtype={images.dtype}: expected uint8 values from 0 to 255 "
            "of shape [number, height, width, 3] or, for grey images, [number, height, width]."
        )
    return images


def check_labels(labels, num_images, where):
    if labels.shape != (num_images,) or labels.dtype.kind not in "iuU":
        raise ValueError(
            f"{where} has labels of shape={labels.shape} and dtype={labels.dtype}: expected one integer or string for "
            f"each of {num_images} images."
        )
    if labels.dtype.kind == "i" and labels.min() < 0:
        raise ValueError(
            f"{where} has labels from {labels.min()} to {labels.max()}: expected numbers from 0. Images without a "
            "label belong into unlabeled_file."
        )
    return labels


def open_files(train_file, unlabeled_file="", test_file=""):
    """Returns a dict from split to FileSplit."""
    if not train_file:
        raise ValueError("train_file is not given: expected an .npz file with images and labels.")
    files = {"train_file": train_file, "unlabeled_file": unlabeled_file, "test_file": test_file}
    return {
        split: FileSplit(path, flag, labelled=split != "unlabelled")
        for split, (flag, path) in zip(SPLITS, files.items())
        if path
    }


# ---- what both have in common ---------------------------------------------------------------------------------------


def prepare(name, splits, output_dir, image_size=0, flip=False):
    """Decodes all images into output_dir, unless that was done already.

    Args:
      name: task_name of the records.
      splits: dict from "train" and, if there are such images, "unlabelled" and "test" to FolderSplit or FileSplit.
      image_size: 0 chooses one, see choose_image_size.
      flip: whether a mirrored image belongs to the same class.
    """
    check_classes(splits)
    if image_size and not MIN_SIZE <= image_size <= MAX_SIZE:
        raise ValueError(f"image_size={image_size}: expected {MIN_SIZE} to {MAX_SIZE}, or 0 to find it.")
    decoded_dir = os.path.join(output_dir, "decoded")
    info_path = os.path.join(decoded_dir, "info.json")
    identity = identify(splits, image_size, flip)
    if not is_decoded(output_dir, identity):
        image_size = image_size or choose_image_size(splits)
        records.try_to_write(output_dir, lambda: os.makedirs(decoded_dir, exist_ok=True))
        if os.path.exists(info_path):
            os.remove(info_path)  # it would describe what is overwritten now
        info = decode(name, splits, output_dir, image_size, flip)
        run_dir.write_json(info_path, info | {"identity": identity})
    info = run_dir.read_json(info_path)
    report_skipped(info["num_skipped"], splits, output_dir)
    facts = {key: tuple(value) if isinstance(value, list) else value for key, value in info["facts"].items()}
    return Prepared(Facts(**facts), DecodedImages(decoded_dir), info["checksums"])


def is_decoded(output_dir, identity):
    paths = [os.path.join(output_dir, "decoded", name) for name in ("images.bin", "labels.npy", "info.json")]
    if not all(map(os.path.exists, [skipped_path(output_dir), *paths])):
        return False
    return run_dir.read_json(paths[-1])["identity"] == identity


def check_classes(splits):
    class_names = splits["train"].class_names
    if len(class_names) < 2:
        raise ValueError(f"the training data have the classes {list(class_names)}: expected at least two.")
    unknown = sorted(set(splits["test"].class_names) - set(class_names)) if "test" in splits else []
    if unknown:
        raise ValueError(f"the test data have the classes {unknown}, which the training data {list(class_names)} lack.")


def identify(splits, image_size, flip):
    """A checksum that changes when files or flags change, from names, sizes and times: no image is read for it."""
    digest = hashlib.sha256(f"{PIL.__version__} {image_size} {flip}".encode())
    for split, source in splits.items():
        for line in itertools.chain([split, *source.class_names], source.identity()):
            digest.update(f"{line}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def choose_image_size(splits):
    """The size of the images if all of them are squares of one size from 8 to 512 pixels. Otherwise the median of their
    shorter sides, rounded down to a multiple of 8, at least 8 and at most 224."""
    sizes = np.array([size for source in splits.values() for size in source.sizes()])
    if not len(sizes):
        raise ValueError("none of the images can be read.")
    if np.all(sizes == sizes[0, 0]) and MIN_SIZE <= sizes[0, 0] <= MAX_SIZE:
        return int(sizes[0, 0])
    image_size = int(np.clip(np.median(sizes.min(axis=1)) // 8 * 8, MIN_SIZE, MAX_DEFAULT_SIZE))
    low, high = sizes.min(axis=0), sizes.max(axis=0)
    found = f"{low[0]}×{low[1]} to {high[0]}×{high[1]} pixels"
    print(f"the images have {found}: image_size={image_size} is used; --image_size sets another one.")
    return image_size


def decode(name, splits, output_dir, image_size, flip):
    """Writes images.bin, labels.npy and unreadable_images.txt. Returns what info.json is to hold."""
    decoded_dir = os.path.join(output_dir, "decoded")
    temporary = os.path.join(decoded_dir, f"images.bin.tmp-{os.getpid()}")
    written = Written({}, [], [], {})

    def write_files():
        with open(temporary, "wb") as file:
            write_images(file, splits, image_size, written)
        os.replace(temporary, os.path.join(decoded_dir, "images.bin"))
        np.save(os.path.join(decoded_dir, "labels.npy"), np.array(written.labels, np.int64))
        with open(skipped_path(output_dir), "w", errors="surrogateescape") as file:
            file.writelines(f"{line}\n" for line in written.skipped)

    try:
        records.try_to_write(output_dir, write_files)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    check_counts(splits, written.counts, written.labels, output_dir)
    images = _map_images(decoded_dir, len(written.labels), image_size)
    facts = describe(name, images, splits["train"].class_names, written.counts, flip)
    return {"facts": dataclasses.asdict(facts), "checksums": written.checksums, "num_skipped": len(written.skipped)}


# What was written so far: numbers of images and checksums by split, the class of each image or -1, and what was not.
Written = collections.namedtuple("Written", "counts labels skipped checksums")


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


def describe(name, images, class_names, counts, flip):
    """The facts; mean and deviation are those of all images but the test images."""
    mean, std = channel_statistics(images[: counts["train"] + counts["unlabelled"]])
    return Facts(
        name=name,
        image_size=images.shape[1],
        class_names=class_names,
        mean=mean,
        std=std,
        flip=flip,
        train_size=counts["train"],
        test_size=counts["test"],
        extra_size=counts["unlabelled"],
        label_order="numpy_seed_0",  # files are in the order of their classes
    )


def _read_split(source, split, image_size):
    """Yields (image or error, its name, its label)."""
    if source is None:
        return
    labels = source.labels or itertools.repeat(None)
    images = tqdm(source.read(image_size), total=len(source.names), unit="image", desc=f"reading {split} images")
    yield from zip(images, source.names, labels)


def check_counts(splits, counts, labels, output_dir):
    where = f"unreadable images are listed in {skipped_path(output_dir)}"
    found = set(labels[: counts["train"]])
    for number, class_name in enumerate(splits["train"].class_names):
        if number not in found:
            raise ValueError(
                f"the class {class_name!r} has no image that can be read among the training data: add some, or remove "
                f"its folder ({where})."
            )
    for split in splits:
        if not counts[split]:
            raise ValueError(f"none of the {split} images can be read ({where}).")


def skipped_path(output_dir):
    return os.path.join(output_dir, "unreadable_images.txt")


def report_skipped(num_skipped, splits, output_dir):
    num_ignored = sum(source.num_ignored for source in splits.values())
    if num_ignored:
        print(f"{num_ignored} files were left alone: their names do not end like images.")
    if not num_skipped:
        return
    path = skipped_path(output_dir)
    print(f"{num_skipped} images cannot be read and are left out; all are listed in {path}:")
    with open(path, errors="surrogateescape") as file:
        for line in itertools.islice(file, NUM_SHOWN):
            print("  " + line.rstrip("\n").split("\t")[-1])


def _map_images(decoded_dir, num_images, image_size):
    """All decoded images, of which the system loads into memory what is used."""
    path = os.path.join(decoded_dir, "images.bin")
    return np.asarray(np.memmap(path, np.uint8, "r", shape=(num_images, image_size, image_size, 3)))


class DecodedImages(collections.namedtuple("DecodedImages", "decoded_dir")):
    """Returns the arrays for preprocess.write_sets when called; small enough to be sent to other processes."""

    def __call__(self):
        facts = run_dir.read_json(os.path.join(self.decoded_dir, "info.json"))["facts"]
        labels = np.load(os.path.join(self.decoded_dir, "labels.npy"))
        images = _map_images(self.decoded_dir, len(labels), facts["image_size"])
        num_train, num_unlabelled = facts["train_size"], facts["train_size"] + facts["extra_size"]
        return {
            "train": (images[:num_train], labels[:num_train]),
            "unlabelled": (images[:num_unlabelled], None),
            "test": (images[num_unlabelled:], labels[num_unlabelled:]),
        }
