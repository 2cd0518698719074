"""The user's own images in arrays: in .npz and .npy files, or in memory.

An .npz file has images, uint8 [n, height, width, 3] or [n, height, width, 1] or [n, height, width], and, unless they
are unlabelled, labels, integers from 0 or strings. A .npy file has the images alone.
"""

import hashlib
import io
import math

import numpy as np
from PIL import Image

from image.datasets import decoded, image_files
from image.datasets.source import Source, describe
from utils import files

FLAGS = {"train": "train_file", "unlabeled": "unlabeled_file", "test": "test_file"}
IMAGES, LABELS = "images", "labels"  # the arrays of an .npz file
SAVE_IMAGES = "write it with np.save(path, images)."
SAVE_BOTH = "write it with np.savez(path, images=images, labels=labels)."
BYTES_AT_ONCE = 1 << 23  # of images that are read at once, unless a single one has more


# ---- in files -------------------------------------------------------------------------------------------------------


def open_source(config):
    splits = open_files(config.train_file, config.unlabeled_file, config.test_file)
    return decoded.open_decoded("npz", splits, config.data_dir, config.image_size, config.flip)


def open_files(train_file, unlabeled_file="", test_file=""):
    """Returns a dict from split to ArrayFile."""
    if not train_file:
        raise ValueError("train_file is not given: expected an .npz file with images and labels.")
    paths = zip(FLAGS.items(), (train_file, unlabeled_file, test_file))
    return {split: ArrayFile(path, flag, labelled=split != "unlabeled") for (split, flag), path in paths if path}


class ArrayFile:
    """The images of a file, which may be larger than the memory: only what is asked for is read.

    Attributes: num_images; labels, the class of each image, or None; class_names; num_ignored; checksum of the content.
    """

    num_ignored = 0

    def __init__(self, path, flag, labelled):
        self.path, self.where = path, f"{flag}={path!r}"
        with self._opened() as (header, _):
            shape, dtype = header.shape, header.dtype
        _check_images(shape, dtype, self.where)
        self.num_images, self.image_shape = shape[0], shape[1:]
        digest = hashlib.sha256(str(shape).encode())
        for images in self._read_runs(range(self.num_images)):  # all of it, so that a broken file is noticed now
            digest.update(images)
        self.labels, self.class_names = self._read_labels() if labelled else (None, ())
        digest.update(str(self.labels).encode())
        self.checksum = digest.hexdigest()

    def _read_labels(self):
        if self.path.endswith(".npy"):
            raise ValueError(f"{self.where} cannot be read (a .npy file has no {LABELS}): {SAVE_BOTH}")
        labels = files.read_array(self.path, LABELS, SAVE_BOTH, self.where)
        _check_labels(labels, self.num_images, self.where)
        return labels.astype(str).tolist(), tuple(np.unique(labels).astype(str).tolist())

    def name(self, position):
        return f"{self.path}[{position}]"

    def sizes(self):
        """(width, height) of each image."""
        return [self.image_shape[1::-1]] * self.num_images

    def read(self, image_size, positions):
        """Yields the images at these positions, which ascend."""
        for images in self._read_runs(positions):
            yield from (_fit(image, image_size) for image in images)

    def _read_runs(self, positions):
        """Yields images, some at once: uint8 [n, *image_shape]."""
        num_bytes = math.prod(self.image_shape)
        with self._opened() as (header, file):
            start = file.tell()
            if header.fortran_order:  # each image is spread over the whole file
                values = np.frombuffer(files.read_exactly(file, math.prod(header.shape)), np.uint8)
                file, start = io.BytesIO(values.reshape(header.shape, order="F").tobytes()), 0
            for first, number in _split_into_runs(positions, max(BYTES_AT_ONCE // num_bytes, 1)):
                file.seek(start + first * num_bytes)
                content = files.read_exactly(file, number * num_bytes)
                yield np.frombuffer(content, np.uint8).reshape(number, *self.image_shape)

    def _opened(self):
        """Gives the header of the images, and the file where they begin; what goes wrong in the block is explained."""
        name, advice = ("", SAVE_IMAGES) if self.path.endswith(".npy") else (IMAGES, SAVE_BOTH)
        return files.open_array(self.path, name, advice, self.where)


def _split_into_runs(positions, most):
    """Yields (first, number) of images to read at once."""
    if not isinstance(positions, range):
        return ((int(position), 1) for position in positions)
    return ((first, min(most, positions.stop - first)) for first in range(positions.start, positions.stop, most))


def _fit(image, image_size):
    if image.shape == (image_size, image_size, 3):
        return image
    image = image[..., 0] if image.shape[2:] == (1,) else image
    return image_files.fit_square(Image.fromarray(image).convert("RGB"), image_size)


def _check_images(shape, dtype, where):
    fits = len(shape) == 3 or len(shape) == 4 and shape[3] in (1, 3)
    if dtype != np.uint8 or not fits or not math.prod(shape):
        raise ValueError(
            f"{where} has images of shape={shape} and dtype={dtype}: expected uint8 values from 0 to 255 of shape "
            "[number, height, width, 3] or, for grey images, [number, height, width]."
        )
    image_files.check_pixels(f"each image of {where}", shape[2], shape[1])


def _check_labels(labels, num_images, where):
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


# ---- in memory ------------------------------------------------------------------------------------------------------


def hold_in_memory(images, labels, class_names, unlabeled_images=None, flip=False):
    """Returns the Source of images, uint8 [n, size, size, 3], and labels, int64 [n]; it stays in this process."""
    all_images = images if unlabeled_images is None else np.concatenate([images, unlabeled_images])
    facts = describe("arrays", all_images, tuple(class_names), flip, train_size=len(all_images), test_size=0)
    return Source(facts, lambda: {"train": (images, labels), "unlabeled": (all_images, None)}, {})
