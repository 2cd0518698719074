"""Raw image files to arrays: CIFAR-10, SVHN and scikit-learn's digits, with their labelled subsets.

facts = DATASETS["cifar10"]
images, labels = read_split("cifar10", "data/raw/cifar10", "train")
labelled = choose_labelled(labels, sup_size=4000, num_classes=facts.num_classes, label_order=facts.label_order)
labelled, dev = split_dev(labelled, labels, facts.num_classes, dev_size=500)
"""

import hashlib
import io
import pickle
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.io
from PIL import Image
from sklearn.datasets import load_digits


@dataclass(frozen=True)
class Facts:
    """What is fixed about a data set. Mean and std are per RGB channel, on the [0, 1] scale."""

    name: str
    image_size: int
    class_names: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    flip: bool  # a horizontal flip keeps the label
    train_size: int
    test_size: int
    extra_size: int = 0  # 0: there is no such split
    label_order: str = "file"  # a key of LABEL_ORDERS

    @property
    def num_classes(self):
        return len(self.class_names)

    @property
    def split_sizes(self):
        sizes = {"train": self.train_size, "test": self.test_size, "extra": self.extra_size}
        return {split: size for split, size in sizes.items() if size}


def channel_statistics(images):
    """Mean and deviation of each channel of uint8 [N, size, size, 3], on the [0, 1] scale, as two tuples."""
    # From counts of the 256 values, in blocks: no float copy of all images is made.
    counts = np.zeros([3, 256])
    for start in range(0, len(images), 1024):
        for channel in range(3):
            counts[channel] += np.bincount(images[start : start + 1024, ..., channel].ravel(), minlength=256)
    shares, values = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
    mean = shares @ values
    std = np.sqrt(np.maximum(shares @ values**2 - mean**2, 0))
    return tuple(mean.tolist()), tuple(np.maximum(std, 1e-3).tolist())  # a channel of one value stays finite


DIGIT_NAMES = tuple("0123456789")

DATASETS = {
    "cifar10": Facts(
        name="cifar10",
        image_size=32,
        class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        mean=(0.49139968, 0.48215841, 0.44653091),
        std=(0.24703223, 0.24348513, 0.26158784),
        flip=True,
        train_size=50_000,
        test_size=10_000,
    ),
    "svhn": Facts(
        name="svhn",
        image_size=32,
        class_names=DIGIT_NAMES,
        mean=(0.4376821, 0.4437697, 0.47280442),
        std=(0.19803012, 0.20101562, 0.19703614),
        flip=False,
        train_size=73_257,
        test_size=26_032,
        extra_size=531_131,
        label_order="numpy_seed_0",
    ),
    # Small enough to come with scikit-learn: a whole run without a download.
    "digits": Facts(
        name="digits",
        image_size=32,
        class_names=DIGIT_NAMES,
        mean=(0.30954645, 0.30954645, 0.30954645),
        std=(0.34845794, 0.34845794, 0.34845794),
        flip=False,
        train_size=1_297,
        test_size=500,
    ),
}

DOWNLOAD_COMMANDS = {"cifar10": "bash scripts/download_cifar10.sh", "svhn": "bash scripts/download_svhn.sh"}


def read_split(task_name, raw_data_dir, split, allow_partial=False):
    """Reads one official split of a data set, in the order of its files.

    Args:
        task_name: a key of DATASETS.
        raw_data_dir: where the downloaded files are; not used for digits.
        split: "train", "test" or, for SVHN only, "extra".
        allow_partial: take what is there when CIFAR-10 batch files are missing, or when files hold another number of
            images than the official ones. A record that breaks off is still an error.

    Returns:
        images, uint8 [N, 32, 32, 3], and labels, int64 [N].
    """
    if task_name not in DATASETS:
        raise ValueError(f"task_name={task_name!r} is unknown: use one of {', '.join(DATASETS)}")
    if split not in DATASETS[task_name].split_sizes:
        known = ", ".join(DATASETS[task_name].split_sizes)
        raise ValueError(f"split={split!r} does not exist for {task_name}: use one of {known}")
    images, labels = READERS[task_name](Path(raw_data_dir), split, allow_partial)
    return np.ascontiguousarray(images), labels


def damaged_file(task_name, path, expected, found):
    return ValueError(
        f"{path} is not a whole {task_name} file: expected {expected}, found {found}. "
        f"Remove it and download again: {DOWNLOAD_COMMANDS[task_name]}"
    )


def check_examples(task_name, path, images, labels, num_images):
    """Refuses arrays that do not fit the data set. num_images=None: as many as there are labels."""
    facts = DATASETS[task_name]
    num_images = len(labels) if num_images is None else num_images
    shape = (num_images, facts.image_size, facts.image_size, 3)
    if images.dtype != np.uint8 or images.shape != shape or labels.shape != shape[:1]:
        found = f"{images.dtype} images of shape {images.shape} and {len(labels)} labels"
        raise damaged_file(task_name, path, f"uint8 images of shape {shape} and {num_images} labels", found)
    if np.any((labels < 0) | (labels >= facts.num_classes)):
        found = f"labels from {labels.min()} to {labels.max()}"
        raise damaged_file(task_name, path, f"labels from 0 to {facts.num_classes - 1}", found)


# CIFAR-10. Both official forms store an image as its red, green and blue plane, each row by row.

CIFAR10_BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
CIFAR10_PLANES = (3, 32, 32)
CIFAR10_RECORD_BYTES = 1 + 3 * 32 * 32

# All that a pickled array refers to. The official files need the first three; Python 3 writes bytes with the fourth.
PICKLE_GLOBALS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class ArrayUnpickler(pickle.Unpickler):
    """Loads arrays, lists and strings only: a plain pickle.load would run whatever code a file asks for."""

    def find_class(self, module, name):
        if (module, name) not in PICKLE_GLOBALS:
            raise pickle.UnpicklingError(f"refused the global {module}.{name}")
        return super().find_class(module, name)


def parse_pickled_batch(content, path, num_images):
    """A dict with data, uint8 [N, 3072], and labels, a list of N numbers."""
    try:
        batch = ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        images = batch[b"data"].reshape(-1, *CIFAR10_PLANES).transpose(0, 2, 3, 1)
        labels = np.array(batch[b"labels"], np.int64)
    except Exception as error:  # damaged bytes make the unpickler raise almost anything
        expected = f"a pickle of {num_images or 'some'} images"
        found = f"{len(content)} bytes that fail with {type(error).__name__}: {error}"
        raise damaged_file("cifar10", path, expected, found) from error
    check_examples("cifar10", path, images, labels, num_images)
    return images, labels


def parse_binary_batch(content, path, num_images):
    """Records of one label byte and 3,072 pixel bytes, without a header."""
    if not content or len(content) % CIFAR10_RECORD_BYTES:
        expected = f"a multiple of {CIFAR10_RECORD_BYTES} bytes"
        raise damaged_file("cifar10", path, expected, f"{len(content)} bytes")
    if num_images is not None and len(content) != num_images * CIFAR10_RECORD_BYTES:
        expected = f"{num_images * CIFAR10_RECORD_BYTES} bytes ({num_images} images)"
        found = f"{len(content)} bytes ({len(content) // CIFAR10_RECORD_BYTES} images)"
        raise damaged_file("cifar10", path, expected, found)
    records = np.frombuffer(content, np.uint8).reshape(-1, CIFAR10_RECORD_BYTES)
    images = records[:, 1:].reshape(-1, *CIFAR10_PLANES).transpose(0, 2, 3, 1)
    labels = records[:, 0].astype(np.int64)
    check_examples("cifar10", path, images, labels, num_images)
    return images, labels


@dataclass(frozen=True)
class Cifar10Form:
    folder: str
    suffix: str
    archive: str
    md5: str
    parse: Callable

    def file_names(self, split):
        return [batch + self.suffix for batch in CIFAR10_BATCHES[split]]


CIFAR10_FORMS = (
    Cifar10Form(
        folder="cifar-10-batches-py",
        suffix="",
        archive="cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        parse=parse_pickled_batch,
    ),
    Cifar10Form(
        folder="cifar-10-batches-bin",
        suffix=".bin",
        archive="cifar-10-binary.tar.gz",
        md5="c32a1d4ab5d03f1284b67883e8d87530",
        parse=parse_binary_batch,
    ),
)


def find_cifar10(raw_data_dir):
    """Returns the form and the path of what to read: an extracted folder, else an archive, else raw_data_dir itself."""
    folders = [(form, raw_data_dir / form.folder) for form in CIFAR10_FORMS]
    archives = [(form, raw_data_dir / form.archive) for form in CIFAR10_FORMS]
    for form, path in folders + archives + [(form, raw_data_dir) for form in CIFAR10_FORMS]:
        names = form.file_names("train") + form.file_names("test")
        if (path.name == form.archive and path.is_file()) or any((path / name).is_file() for name in names):
            return form, path
    looked_for = ", ".join(path.name for _, path in folders + archives)
    raise ValueError(
        f"No CIFAR-10 in raw_data_dir={str(raw_data_dir)!r}: looked for {looked_for} and for batch files in the folder "
        f"itself. Download it: {DOWNLOAD_COMMANDS['cifar10']} {raw_data_dir}"
    )


def read_folder(folder, names):
    """Returns the contents of those files that exist, by name."""
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def read_archive(form, path, names):
    """Returns the contents of those members that exist, by name, without extracting to disk."""
    with open(path, "rb") as file:
        md5 = hashlib.md5(usedforsecurity=False)
        while block := file.read(1 << 20):
            md5.update(block)
    if md5.hexdigest() != form.md5:
        found = f"md5={md5.hexdigest()} ({path.stat().st_size} bytes)"
        raise damaged_file("cifar10", path, f"md5={form.md5}", found)
    wanted = {f"{form.folder}/{name}": name for name in names}
    with tarfile.open(path) as archive:
        # In the order of the archive, because going back in a compressed file means to start over.
        return {wanted[member.name]: archive.extractfile(member).read() for member in archive if member.name in wanted}


def read_cifar10(raw_data_dir, split, allow_partial):
    form, path = find_cifar10(raw_data_dir)
    names = form.file_names(split)
    contents = read_archive(form, path, names) if path.is_file() else read_folder(path, names)
    missing = [name for name in names if name not in contents]
    if missing and not (allow_partial and contents):
        raise ValueError(
            f"{path} lacks {', '.join(missing)} of the {split} split. Add what is missing, or remove the folder and "
            f"download again: {DOWNLOAD_COMMANDS['cifar10']} (allow_partial reads the batches that are there, if any)"
        )
    num_images = None if allow_partial else DATASETS["cifar10"].split_sizes[split] // len(names)
    batches = [form.parse(contents[name], path / name, num_images) for name in names if name in contents]
    images, labels = zip(*batches)
    return np.concatenate(images), np.concatenate(labels)


def read_svhn(raw_data_dir, split, allow_partial):
    """Cropped digits: X, uint8 [32, 32, 3, N], and y, [N, 1], where the class 10 is the digit 0."""
    path = raw_data_dir / f"{split}_32x32.mat"
    option = " --extra" if split == "extra" else ""
    if not path.is_file():
        raise ValueError(f"{path} does not exist. Download it: {DOWNLOAD_COMMANDS['svhn']}{option} {raw_data_dir}")
    num_images = None if allow_partial else DATASETS["svhn"].split_sizes[split]
    try:
        arrays = scipy.io.loadmat(path, variable_names=["X", "y"])
        images = arrays["X"].transpose(3, 0, 1, 2)
        labels = arrays["y"].ravel().astype(np.int64)
    except Exception as error:  # damaged bytes make the reader raise almost anything
        expected = f"a MATLAB file of {num_images or 'some'} images"
        found = f"{path.stat().st_size} bytes that fail with {type(error).__name__}: {error}"
        raise damaged_file("svhn", path, expected, found) from error
    labels[labels == 10] = 0
    check_examples("svhn", path, images, labels, num_images)
    return images, labels


def read_digits(raw_data_dir, split, allow_partial):
    """scikit-learn's 8x8 digits in 32x32 RGB. They have no official split: ours is a permutation with seed 0."""
    facts = DATASETS["digits"]
    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    chosen = order[: facts.train_size] if split == "train" else order[facts.train_size :]
    small = np.rint(digits.images[chosen] * (255 / 16)).astype(np.uint8)
    size = (facts.image_size, facts.image_size)
    large = np.stack([np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC)) for image in small])
    return np.repeat(large[..., np.newaxis], 3, axis=-1), digits.target[chosen].astype(np.int64)


READERS = {"cifar10": read_cifar10, "svhn": read_svhn, "digits": read_digits}


# Labelled subsets. These take plain arrays, so they serve a user's own labels as well.

# In which order training examples are candidates for a label. The published CIFAR-10 subsets are the first images of
# the files; those of SVHN are the first of this permutation.
LABEL_ORDERS = {
    "file": np.arange,
    "numpy_seed_0": lambda num_examples: np.random.RandomState(0).permutation(num_examples),
}


def choose_labelled(labels, sup_size, num_classes, label_order="file", use_equal_split=False, label_seed=None):
    """Chooses which training examples keep their label.

    Args:
        labels: integers [N], from 0 to num_classes - 1.
        sup_size: how many to choose.
        num_classes: how many classes there are.
        label_order: a key of LABEL_ORDERS; Facts.label_order has the published one of a data set.
        use_equal_split: take equally many of each class, the first of the order, instead of the first of all.
        label_seed: for other subsets than the published one: a permutation with this seed replaces label_order.

    Returns:
        int64 [sup_size], positions in labels, in the order of the candidates.
    """
    labels = np.asarray(labels)
    if not 1 <= sup_size <= len(labels):
        raise ValueError(f"sup_size={sup_size} is out of range: use 1 to {len(labels)}, the number of examples")
    if label_order not in LABEL_ORDERS:
        raise ValueError(f"label_order={label_order!r} is unknown: use one of {', '.join(LABEL_ORDERS)}")
    if label_seed is None:
        order = LABEL_ORDERS[label_order](len(labels))
    else:
        order = np.random.default_rng(label_seed).permutation(len(labels))
    if not use_equal_split:
        return order[:sup_size].astype(np.int64)
    positions = first_of_each_class(labels[order], divide_by_classes("sup_size", sup_size, num_classes), num_classes)
    return order[positions].astype(np.int64)


def split_dev(indices, labels, num_classes, dev_size, use_equal_split=False):
    """Takes a development set out of the labelled examples, so that training sees sup_size - dev_size labels.

    The last dev_size of indices become the development set; with use_equal_split, the last dev_size / num_classes of
    each class. The first labels therefore stay in training, whatever dev_size is.

    Args:
        indices: int64 [sup_size], as choose_labelled returns them.
        labels: integers [N], of all training examples.
        num_classes: how many classes there are.
        dev_size: how many to take out; 0 for none.
        use_equal_split: take equally many of each class.

    Returns:
        train_indices and dev_indices, both in the order of indices.
    """
    indices = np.asarray(indices)
    if not 0 <= dev_size < len(indices):
        raise ValueError(
            f"dev_size={dev_size} is out of range for {len(indices)} labelled examples: the development set is taken "
            f"out of them, so use 0 to {len(indices) - 1}"
        )
    dev_mask = np.zeros(len(indices), bool)
    if use_equal_split:
        per_class = divide_by_classes("dev_size", dev_size, num_classes)
        reversed_labels = np.asarray(labels)[indices][::-1]
        dev_mask[len(indices) - 1 - first_of_each_class(reversed_labels, per_class, num_classes)] = True
    else:
        dev_mask[len(indices) - dev_size :] = True
    return indices[~dev_mask], indices[dev_mask]


def divide_by_classes(name, size, num_classes):
    if size % num_classes:
        below = size - size % num_classes
        choices = f"{below} or {below + num_classes}" if below else f"{num_classes}"
        raise ValueError(
            f"{name}={size} is not divisible by num_classes={num_classes}: use {choices}, or turn use_equal_split off"
        )
    return size // num_classes


def first_of_each_class(labels, per_class, num_classes):
    """Returns the ascending positions of the first per_class examples of each class."""
    positions = [np.flatnonzero(labels == label)[:per_class] for label in range(num_classes)]
    for label, found in enumerate(positions):
        if len(found) < per_class:
            raise ValueError(
                f"Class {label} has {len(found)} examples, but use_equal_split needs {per_class} of each class: "
                "ask for fewer or turn use_equal_split off"
            )
    return np.sort(np.concatenate(positions))
