"""SVHN, cropped digits, in MATLAB files: X, uint8 [32, 32, 3, N], and y, [N, 1], where the class 10 is the digit 0."""

import os
import zlib

import numpy as np

from image.datasets import matlab
from image.datasets.source import Facts, check_examples, damaged_file, download_command, open_official
from utils import files

FACTS = Facts(
    name="svhn",
    image_size=32,
    class_names=tuple("0123456789"),
    mean=(0.4376821, 0.4437697, 0.47280442),
    std=(0.19803012, 0.20101562, 0.19703614),
    flip=False,
    train_size=73_257,
    test_size=26_032,
    extra_size=531_131,
    label_order="numpy_seed_0",
)

# Size and md5 of the official files.
OFFICIAL = {
    "train": (182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373"),
    "test": (64_275_384, "eb5a983be6a315427106f1b164d9cef3"),
    "extra": (1_329_278_602, "a93ce644f1a588dc4d68dda5feec44a7"),
}


def open_source(config):
    return open_official(FACTS, read_split, config)


def read_split(raw_data_dir, split, allow_partial=False):
    """Returns images, uint8 [N, 32, 32, 3], and labels, int64 [N], of "train", "test" or "extra".

    Args:
      allow_partial: take files that hold another number of images than the official ones.
    """
    path = os.path.join(raw_data_dir, f"{split}_32x32.mat")
    option = " --extra" if split == "extra" else ""
    if not files.is_file(path):
        raise ValueError(f"{path} does not exist. Download it: {download_command(FACTS)}{option} {raw_data_dir}")
    num_images = None if allow_partial else FACTS.split_sizes[split]
    check_official(path, *OFFICIAL[split])
    try:
        arrays = matlab.read_arrays(path, ("X", "y"))
        images, labels = arrays["X"].transpose(3, 0, 1, 2), arrays["y"].ravel()
    except (ValueError, KeyError, zlib.error, MemoryError) as error:
        expected = f"a MATLAB file of {num_images or 'some'} images"
        found = f"{files.size(path)} bytes that fail with {type(error).__name__}: {files.reason_of(error)}"
        raise damaged_file(FACTS, path, expected, found) from error
    if not np.all(np.isfinite(labels) & (labels == np.rint(labels))):
        raise damaged_file(FACTS, path, "labels that are whole numbers", "others")
    labels = np.where(labels == 10, 0, labels).astype(np.int64)
    check_examples(FACTS, path, images, labels, num_images)
    return np.ascontiguousarray(images), labels


def check_official(path, num_bytes, md5):
    """A file as large as the official one has to be that one; others are read as far as they make sense."""
    if files.size(path) != num_bytes:
        return
    found = files.checksum(path, "md5")
    if found != md5:
        raise damaged_file(FACTS, path, f"md5={md5}", f"md5={found} ({num_bytes} bytes)")
