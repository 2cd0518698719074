"""Compares finished runs: a table of error rates, and a picture of their curves and of some augmented images.

    python -m image.report --run="supervised=runs/a" --run="UDA=runs/b" --data_dir=data/digits --output=report.png

A name may be given several times, with runs of other seeds: the table then has mean ± deviation.
"""

import numpy as np
import tensorflow as tf
from absl import flags

from image import record_format
from utils import cli, records, report

GRID_ROWS, GRID_COPIES = 6, 5


def read_pairs(data_dir, augmentation, num_images, num_copies):
    """Originals and their augmentations from the unlabelled copies.

    Returns:
      originals: uint8 [num_images, size, size, 4]; augmented: uint8 [num_images, num_copies, size, size, 4].
    """
    facts = record_format.read_facts(data_dir)
    originals, augmented = None, []
    for copy in range(num_copies):
        set_dir = record_format.copy_dir(f"{data_dir}/unsup", augmentation, copy)
        record_set = records.read_set(set_dir, {}, "Run `python -m image.preprocess --data_type=unsup` first.")
        serialized = tf.data.TFRecordDataset(record_set.paths).batch(record_set.num_examples).get_single_element()
        parsed = record_format.parse(serialized, facts.image_size, ["original", "augmented", "index"])
        chosen = np.argsort(parsed["index"].numpy())[:num_images]
        originals = parsed["original"].numpy()[chosen]
        augmented.append(parsed["augmented"].numpy()[chosen])
    return originals, np.stack(augmented, axis=1)


def draw_examples(axes, data_dir, aug_ops):
    """Draws one row per image: the original, a gap, its augmentations. What has no content is grey."""
    originals, augmented = read_pairs(data_dir, aug_ops, GRID_ROWS, GRID_COPIES)
    size = originals.shape[1]
    gap = np.full([size + 2, size // 4, 3], 255, np.uint8)
    rows = []
    for original, copies in zip(originals, augmented):
        tiles = [np.where(tile[..., 3:] > 0, tile[..., :3], np.uint8(128)) for tile in (original, *copies)]
        tiles = [np.pad(tile, [[1, 1], [1, 1], [0, 0]], constant_values=255) for tile in tiles]
        rows.append(np.concatenate([tiles[0], gap, *tiles[1:]], axis=1))
    axes.imshow(np.concatenate(rows), interpolation="nearest")
    axes.axis("off")
    axes.set_title(f"original | what {aug_ops} makes of it", fontsize=10)


def define_flags():
    report.define_flags(aug_ops="randaugment")
    flags.DEFINE_alias("aug", "aug_ops")


def main():
    report.write_report(draw_examples)


if __name__ == "__main__":
    cli.run(main, define_flags)
