"""SVHN, cropped digits, in MATLAB files: X, uint8 [32, 32, 3, N], and y, [N, 1], where the class 10 is the digit 0."""

from pathlib import Path

import numpy as np
import scipy.io

from image.datasets.source import Facts, check_examples, damaged_file, download_command, open_official

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


def open_source(config):
    return open_official(FACTS, read_split, config)


def read_split(raw_data_dir, split, allow_partial=False):
    """Returns images, uint8 [N, 32, 32, 3], and labels, int64 [N], of "train", "test" or "extra".

    Args:
      allow_partial: take files that hold another number of images than the official ones.
    """
    path = Path(raw_data_dir) / f"{split}_32x32.mat"
    option = " --extra" if split == "extra" else ""
    if not path.is_file():
        raise ValueError(f"{path} does not exist. Download it: {download_command(FACTS)}{option} {raw_data_dir}")
    num_images = None if allow_partial else FACTS.split_sizes[split]
    try:
        arrays = scipy.io.loadmat(path, variable_names=["X", "y"])
        images = arrays["X"].transpose(3, 0, 1, 2)
        labels = arrays["y"].ravel().astype(np.int64)
    except Exception as error:  # damaged bytes make the reader raise almost anything
        expected = f"a MATLAB file of {num_images or 'some'} images"
        found = f"{path.stat().st_size} bytes that fail with {type(error).__name__}: {error}"
        raise damaged_file(FACTS, path, expected, found) from error
    labels[labels == 10] = 0
    check_examples(FACTS, path, images, labels, num_images)
    return np.ascontiguousarray(images), labels
