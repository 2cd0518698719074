"""Small CIFAR-10 files and their records."""

import json
import os

import numpy as np
import tensorflow as tf

from image import export, preprocess, record_format, train
from image.config import Config
from image.datasets import cifar10
from tests.programs import run_main

BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")

# A network and a run that take seconds.
TINY_RUN = {
    "wrn_depth": 10,
    "wrn_size": 4,
    "wrn_stem_stride": 2,
    "train_batch_size": 4,
    "unsup_ratio": 2,
    "eval_batch_size": 8,
    "ema_decay": 0.9,
}


def write_cifar10(raw_data_dir, num_train=40, num_test=12, seed=0):
    """Writes the binary form of CIFAR-10 with few images; every ten of them have all ten classes in random order.

    Returns:
      dict from split to (images uint8 [n, 32, 32, 3], labels int64 [n]).
    """
    rng = np.random.default_rng(seed)
    folder = os.path.join(raw_data_dir, "cifar-10-batches-bin")
    os.makedirs(folder)
    arrays = {}
    for split, size in (("train", num_train), ("test", num_test)):
        images = rng.integers(0, 256, (size, 32, 32, 3), np.uint8)
        labels = np.concatenate([rng.permutation(10) for _ in range(-(-size // 10))])[:size]
        arrays[split] = images, labels
        names = BATCHES[:5] if split == "train" else BATCHES[5:]
        for name, rows in zip(names, np.array_split(np.arange(size), len(names))):
            content = b"".join(bytes([labels[row]]) + images[row].transpose(2, 0, 1).tobytes() for row in rows)
            with open(os.path.join(folder, f"{name}.bin"), "wb") as file:
                file.write(content)
    return arrays


def preprocess_arguments(raw_data_dir, output_dir, **settings):
    settings = {"sup_size": 20, "aug_copy": 2, "workers": 1} | settings
    paths = [f"--raw_data_dir={raw_data_dir}", f"--output_dir={output_dir}", "--allow_partial"]
    return paths + [f"--{name}={value}" for name, value in settings.items()]


def run_preprocess(raw_data_dir, output_dir, **settings):
    run_main(preprocess, *preprocess_arguments(raw_data_dir, output_dir, **settings))


def tiny_config(data_dir, **settings):
    """The configuration of a tiny run on the records that run_preprocess writes."""
    return Config(**{"data_dir": str(data_dir), "sup_size": 20, "aug_copy": 2} | TINY_RUN | settings)


def export_random_model(export_dir):
    """Exports a tiny network of random weights, whose average is another one, and returns the model."""
    tf.keras.utils.set_random_seed(0)
    model = train.create_model(tiny_config("data"), cifar10.FACTS)
    rng = np.random.default_rng(0)
    weights = model.average_network.get_weights()
    model.average_network.set_weights([rng.normal(weight, 0.2 * (weight.ndim > 1)) for weight in weights])
    export.export(model, cifar10.FACTS, str(export_dir))
    return model


def colored_images(count, size=32):
    """Noise on a random colour: images that even a random network tells apart."""
    rng = np.random.default_rng(count)
    colors = rng.integers(0, 200, (count, 1, 1, 3))
    return (colors + rng.integers(0, 56, (count, size, size, 3))).astype(np.uint8)


def read_records(set_dir, keys=("original", "index")):
    """All records of one set, in their order, parsed: dict of arrays."""
    info = json.loads((set_dir / "info.json").read_text())
    paths = [str(set_dir / shard["name"]) for shard in info["shards"]]
    serialized = tf.data.TFRecordDataset(paths).batch(info["num_examples"]).get_single_element()
    return {key: value.numpy() for key, value in record_format.parse(serialized, 32, list(keys)).items()}


def files_below(folder, ending=""):
    """dict from relative path to content."""
    paths = sorted(path for path in folder.rglob(f"*{ending}") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def plain_crop_flip(image, offset, flip, padding):
    """The weak augmentation of one image in plain NumPy, in the order of the original release: flip, pad, crop."""
    image = image[:, ::-1] if flip else image
    padded = np.pad(image, [(padding, padding), (padding, padding), (0, 0)], mode="reflect")
    height, width = image.shape[:2]
    return padded[offset[0] : offset[0] + height, offset[1] : offset[1] + width]
