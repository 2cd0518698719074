"""scikit-learn's digits, small enough to come with it: a whole run without a download."""

import numpy as np
from PIL import Image

from image.datasets.source import Facts, open_official

FACTS = Facts(
    name="digits",
    image_size=32,
    class_names=tuple("0123456789"),
    mean=(0.30954645, 0.30954645, 0.30954645),
    std=(0.34845794, 0.34845794, 0.34845794),
    flip=False,
    train_size=1_297,
    test_size=500,
)


def open_source(config):
    return open_official(FACTS, read_split, config)


def read_split(raw_data_dir, split, allow_partial=False):
    """8x8 digits in 32x32 RGB. They have no official split: ours is a permutation with seed 0."""
    from sklearn.datasets import load_digits  # here, since every program on images would wait for it

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    chosen = order[: FACTS.train_size] if split == "train" else order[FACTS.train_size :]
    small = np.rint(digits.images[chosen] * (255 / 16)).astype(np.uint8)
    size = (FACTS.image_size, FACTS.image_size)
    large = np.stack([np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC)) for image in small])
    return np.repeat(large[..., np.newaxis], 3, axis=-1), digits.target[chosen].astype(np.int64)
