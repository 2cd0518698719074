"""One page that shows a run, or compares several, with images: utils/report.py, and docs/report.md, tell what is on it.

    python -m image.report --run="supervised=runs/a" --run="UDA=runs/b" --data_dir=data/digits --output=report.html

A name may be given several times, with runs of other seeds: the table then has mean ± deviation.
"""

import base64
import io
import os

import numpy as np
import tensorflow as tf
from absl import flags
from PIL import Image

from image import record_format
from image.config import DataConfig
from utils import cli, examples, page, records, report, settings

NUM_IMAGES, NUM_COPIES = 6, 5
SEARCHED = 400 << 20  # bytes of each copy in which the same images are looked for
LARGEST = 112  # pixels of a side: larger images are made smaller


# ---- reading --------------------------------------------------------------------------------------------------------


def read_pairs(data_dir, set_dirs, num_images):
    """Some originals and their augmentations.

    Args:
      set_dirs: folders of copies, each of which has the images in an order of its own.

    Returns:
      A list of (original, list of its augmentations): uint8 [size, size, 4]. In large sets some are not found.
    """
    image_size = record_format.read_facts(data_dir).image_size
    pairs = {}
    for set_dir in set_dirs:
        advice = "Run `python -m image.preprocess --data_type=unsup` first."
        record_set = records.read_set(set_dir, {}, advice, verify=False)  # the training has done so
        found = find_records(record_set, image_size, pairs or None, num_images)
        parsed = record_format.parse(tf.constant(found, tf.string), image_size, ["original", "augmented", "index"])
        columns = [parsed[key].numpy() for key in ("index", "original", "augmented")]
        for index, original, augmented in zip(*columns):
            pairs.setdefault(int(index), (original, []))[1].append(augmented)
    return list(pairs.values())


def find_records(record_set, image_size, indices, most):
    """Serialised records of these images, or of the first ones, from the first SEARCHED bytes of a set."""
    found, num_searched = [], max(SEARCHED // (6 * image_size**2), 1)
    for serialized in tf.data.TFRecordDataset(record_set.paths).take(num_searched).batch(256):
        numbers = record_format.parse(serialized, image_size, ["index"])["index"].numpy().tolist()
        found += [record for number, record in zip(numbers, serialized.numpy()) if indices is None or number in indices]
        if len(found) >= most:
            break
    return found[:most]


def read_rows(data_dir, rows):
    """Some images of the test set: uint8 [rows, size, size, 4]."""
    facts = record_format.read_facts(data_dir)
    serialized = records.read_rows(os.path.join(data_dir, "test"), rows, "Run `python -m image.preprocess` first.")
    return record_format.parse(serialized, facts.image_size, ["original"])["original"].numpy()


# ---- showing --------------------------------------------------------------------------------------------------------


def show_image(image, title=""):
    """An <img> that holds the picture itself. What has no content is grey."""
    colors = Image.fromarray(np.where(image[..., 3:] > 0, image[..., :3], np.uint8(128)))
    if max(colors.size) > LARGEST:
        colors.thumbnail((LARGEST, LARGEST))
    content, kind = io.BytesIO(), "png" if max(colors.size) <= 48 else "jpeg"  # a photograph is smaller as JPEG
    colors.save(content, kind, **{} if kind == "png" else {"quality": 85})
    encoded = base64.b64encode(content.getvalue()).decode()
    return f'<img alt="{page.escape(title)}" src="data:image/{kind};base64,{encoded}">'


def show_pairs(run, data_dir="", aug_ops=""):
    """Originals beside their augmentations; `data_dir` and `aug_ops` may name others than those of the run."""
    config = read_config(run)
    if config.aug_mode == "online":
        raise ValueError("the augmented copies were made while training, and none are on disk.")
    augmentation, ops = (aug_ops, record_format.OP_NAMES) if aug_ops else (config.aug_ops, config.chosen_ops)
    parent_dir = os.path.join(data_dir, "unsup") if data_dir else record_format.unsup_dir(config)
    paths = [record_format.copy_dir(parent_dir, augmentation, copy, ops) for copy in range(NUM_COPIES)]
    there = [path for path in paths if tf.io.gfile.exists(path)] or paths[:1]
    figures = []
    for original, copies in read_pairs(data_dir or config.data_dir, there, NUM_IMAGES):
        images = [show_image(original, "original"), *(show_image(copy, "augmented copy") for copy in copies)]
        figures.append(f"<figure>{''.join(images)}</figure>")
    note = f"First the original, then what {augmentation} makes of it. Grey pixels have no content."
    return page.paragraph(note) + f'<div class="copies">{"".join(figures)}</div>'


def show_rows(run, rows):
    figures = [
        f"<figure>{show_image(image)}{examples.describe(run.evaluation, row)}</figure>"
        for row, image in zip(rows, read_rows(read_config(run).data_dir, rows))
    ]
    return f'<div class="images">{"".join(figures)}</div>'


def read_config(run):
    """The settings of the records that a run was trained on."""
    config = settings.from_stored(DataConfig, run.config)
    if config.task_name == "imagenet":
        raise ValueError("the images of ImageNet are not in records.")
    return config


def write_run_page(model_dir):
    report.write_run_page(model_dir, show_pairs, show_rows)


# ---- the program ----------------------------------------------------------------------------------------------------


def define_flags():
    report.define_flags(has_examples=True)
    flags.DEFINE_alias("aug", "aug_ops")


def main():
    report.main(show_pairs, show_rows)


if __name__ == "__main__":
    cli.run(main, define_flags)
