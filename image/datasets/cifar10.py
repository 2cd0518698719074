"""CIFAR-10. Both official forms store an image as its red, green and blue plane, each row by row."""

import io
import os
import pickle
import pickletools
import tarfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from image.datasets.source import Facts, check_examples, damaged_file, download_command, open_official
from utils import files

FACTS = Facts(
    name="cifar10",
    image_size=32,
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.49139968, 0.48215841, 0.44653091),
    std=(0.24703223, 0.24348513, 0.26158784),
    flip=True,
    train_size=50_000,
    test_size=10_000,
)
BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
PLANES = (3, 32, 32)
RECORD_BYTES = 1 + 3 * 32 * 32

# All that a pickled array refers to. The official files need the first three; Python 3 writes bytes with the fourth.
PICKLE_GLOBALS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),  # as NumPy 2 writes it
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def open_source(config):
    return open_official(FACTS, read_split, config)


def read_split(raw_data_dir, split, allow_partial=False):
    """Returns images, uint8 [N, 32, 32, 3], and labels, int64 [N], of "train" or "test", in the order of the files.

    Args:
      allow_partial: take what is there when batch files are missing, or hold another number of images than the official
        ones. A record that breaks off is still an error.
    """
    form, path = find_files(raw_data_dir)
    names = form.file_names(split)
    contents = read_archive(form, path, names) if files.is_file(path) else read_folder(path, names)
    missing = [name for name in names if name not in contents]
    if missing and not (allow_partial and contents):
        raise ValueError(
            f"{path} lacks {', '.join(missing)} of the {split} split. Add what is missing, or remove the folder and "
            f"download again: {download_command(FACTS)} (allow_partial reads the batches that are there, if any)"
        )
    num_images = None if allow_partial else FACTS.split_sizes[split] // len(names)
    batches = [form.parse(contents[name], os.path.join(path, name), num_images) for name in names if name in contents]
    images, labels = zip(*batches)
    return np.ascontiguousarray(np.concatenate(images)), np.concatenate(labels)


# ---- one batch file -------------------------------------------------------------------------------------------------


class ArrayUnpickler(pickle.Unpickler):
    """Loads arrays, lists and strings only: a plain pickle.load would run whatever code a file asks for."""

    def find_class(self, module, name):
        if (module, name) not in PICKLE_GLOBALS:
            raise pickle.UnpicklingError(f"refused the global {module}.{name}")
        return _reconstruct if name == "_reconstruct" else super().find_class(module, name)


def _reconstruct(kind, shape, dtype):
    """An empty array, as each pickle begins one; another shape would ask for that much memory."""
    if shape != (0,):
        raise pickle.UnpicklingError(f"refused an array that begins with shape={shape}")
    return np.ndarray.__new__(kind, shape, dtype)


def _check_operations(content):
    """Refuses texts longer than the file, and numbers of remembered objects that would ask for all memory there is."""
    for operation, argument, _ in pickletools.genops(content):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= argument <= len(content):
            raise pickle.UnpicklingError(f"refused to remember {argument} objects")


def parse_pickled(content, path, num_images):
    """A dict with data, uint8 [N, 3072], and labels, a list of N numbers."""
    try:
        _check_operations(content)
        batch = ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        images = batch[b"data"].reshape(-1, *PLANES).transpose(0, 2, 3, 1)
        labels = np.array(batch[b"labels"])
    except Exception as error:  # damaged bytes make the unpickler raise almost anything
        expected = f"a pickle of {num_images or 'some'} images"
        found = f"{len(content)} bytes that fail with {type(error).__name__}: {files.reason_of(error)}"
        raise damaged_file(FACTS, path, expected, found) from error
    check_examples(FACTS, path, images, labels, num_images)
    return images, labels.astype(np.int64)


def parse_binary(content, path, num_images):
    """Records of one label byte and 3,072 pixel bytes, without a header."""
    if not content or len(content) % RECORD_BYTES:
        raise damaged_file(FACTS, path, f"a multiple of {RECORD_BYTES} bytes", f"{len(content)} bytes")
    if num_images is not None and len(content) != num_images * RECORD_BYTES:
        expected = f"{num_images * RECORD_BYTES} bytes ({num_images} images)"
        found = f"{len(content)} bytes ({len(content) // RECORD_BYTES} images)"
        raise damaged_file(FACTS, path, expected, found)
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD_BYTES)
    images = records[:, 1:].reshape(-1, *PLANES).transpose(0, 2, 3, 1)
    labels = records[:, 0].astype(np.int64)
    check_examples(FACTS, path, images, labels, num_images)
    return images, labels


# ---- which files ----------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """One of the two forms in which the data set is published."""

    folder: str
    suffix: str
    archive: str
    md5: str
    parse: Callable

    def file_names(self, split):
        return [batch + self.suffix for batch in BATCHES[split]]


FORMS = (
    Form("cifar-10-batches-py", "", "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", parse_pickled),
    Form("cifar-10-batches-bin", ".bin", "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", parse_binary),
)


def find_files(raw_data_dir):
    """Returns the form and the path of what to read: an extracted folder, else an archive, else raw_data_dir itself."""
    folders = [(form, os.path.join(raw_data_dir, form.folder)) for form in FORMS]
    archives = [(form, os.path.join(raw_data_dir, form.archive)) for form in FORMS]
    for form, path in folders + archives + [(form, raw_data_dir) for form in FORMS]:
        paths = [os.path.join(path, name) for name in form.file_names("train") + form.file_names("test")]
        if (os.path.basename(path) == form.archive and files.is_file(path)) or any(map(files.is_file, paths)):
            return form, path
    looked_for = ", ".join(os.path.basename(path) for _, path in folders + archives)
    raise ValueError(
        f"No CIFAR-10 in raw_data_dir={str(raw_data_dir)!r}: looked for {looked_for} and for batch files in the folder "
        f"itself. Download it: {download_command(FACTS)} {raw_data_dir}"
    )


def read_folder(folder, names):
    """Returns the contents of those files that exist, by name."""
    paths = {name: os.path.join(folder, name) for name in names}
    return {name: files.read_bytes(path) for name, path in paths.items() if files.is_file(path)}


def read_archive(form, path, names):
    """Returns the contents of those members that exist, by name, without extracting to disk."""
    md5 = files.checksum(path, "md5")
    if md5 != form.md5:
        raise damaged_file(FACTS, path, f"md5={form.md5}", f"md5={md5} ({files.size(path)} bytes)")
    wanted = {f"{form.folder}/{name}": name for name in names}
    with files.open_file(path, "rb") as file, tarfile.open(fileobj=file) as archive:
        # In the order of the archive, because going back in a compressed file means to start over.
        return {wanted[member.name]: archive.extractfile(member).read() for member in archive if member.name in wanted}
