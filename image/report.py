"""Compares finished runs: a table of error rates, and a picture of their curves and of some augmented images.

    python -m image.report --run="supervised=runs/a" --run="UDA=runs/b" --data_dir=data/digits --output=report.png

A name may be given several times, with runs of other seeds: the table then has mean ± deviation.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from absl import app, flags

from image import record_format
from utils import records, report

FLAGS = flags.FLAGS
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


def draw_pairs(axes, originals, augmented):
    """Draws one row per image: the original, a gap, its augmentations. What has no content is grey."""
    size = originals.shape[1]
    gap = np.full([size + 2, size // 4, 3], 255, np.uint8)
    rows = []
    for original, copies in zip(originals, augmented):
        tiles = [np.where(tile[..., 3:] > 0, tile[..., :3], np.uint8(128)) for tile in (original, *copies)]
        tiles = [np.pad(tile, [[1, 1], [1, 1], [0, 0]], constant_values=255) for tile in tiles]
        rows.append(np.concatenate([tiles[0], gap, *tiles[1:]], axis=1))
    axes.imshow(np.concatenate(rows), interpolation="nearest")
    axes.set_title("original | what RandAugment makes of it", fontsize=10)
    axes.axis("off")


def write_picture(path, runs, data_dir, augmentation):
    """Draws the curves and, if `data_dir` is given, images of its copies."""
    num_panels = 3 if data_dir else 2
    figure, axes = plt.subplots(1, num_panels, figsize=(5 * num_panels, 4.5))
    report.draw_curves(axes[0], runs, "loss", "training loss")
    report.draw_curves(axes[1], runs, "test_accuracy", "test accuracy")
    if data_dir:
        draw_pairs(axes[2], *read_pairs(data_dir, augmentation, GRID_ROWS, GRID_COPIES))
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def define_flags():
    flags.DEFINE_multi_string("run", None, "NAME=MODEL_DIR of a finished run; repeat for more.", required=True)
    flags.DEFINE_string("data_dir", "", "Records with augmented copies, to show some; '' draws the curves alone.")
    flags.DEFINE_string("aug", "randaugment", "Augmentation to show.")
    flags.DEFINE_string("output", "report.png", "Picture to write; the table goes beside it, as .md and .csv.")


def main(_):
    try:
        runs = report.parse_runs(FLAGS.run)
        rows = report.collect(runs)
        print(report.format_table(rows))
        report.write_tables(os.path.splitext(FLAGS.output)[0], rows)
        write_picture(FLAGS.output, runs, FLAGS.data_dir, FLAGS.aug)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error
    print(f"{'curves and augmented images' if FLAGS.data_dir else 'curves'}: {FLAGS.output}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
