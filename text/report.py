"""Compares finished runs: a table of error rates, and a picture of their curves and of some augmented texts.

    python -m text.report --run="supervised=runs/a" --run="UDA=runs/b" --data_dir=data/imdb --aug_op=tf_idf-0.7

A name may be given several times, with runs of other seeds: the table then has mean ± deviation.
"""

import os
import textwrap

import matplotlib.pyplot as plt
import tensorflow as tf
from absl import app, flags

from text import record_format
from text.tokenization import read_vocab
from utils import records, report

FLAGS = flags.FLAGS
NUM_PAIRS, LINE_WIDTH, NUM_LINES = 4, 60, 3


def read_pairs(data_dir, aug_op, num_pairs):
    """The first originals and their augmentations, as text: a list of pairs."""
    vocab = read_vocab(record_format.vocab_path(data_dir))
    set_dir = record_format.copy_dir(data_dir, aug_op, 0)
    record_set = records.read_set(set_dir, {}, "Run `python -m text.preprocess --data_type=unsup` first.")
    serialized = next(iter(tf.data.TFRecordDataset(record_set.paths).batch(num_pairs)))
    parsed = record_format.parse(serialized, record_format.VIEWS)
    texts = [
        [join_pieces(vocab, tf.io.decode_raw(pieces, tf.int32).numpy()) for pieces in parsed[view]["pieces"]]
        for view in record_format.VIEWS
    ]
    return list(zip(*texts))


def join_pieces(vocab, ids):
    """Readable text out of word pieces, without [CLS] and [SEP]."""
    pieces = [vocab[number] for number in ids]
    return " ".join(piece for piece in pieces if piece not in ("[CLS]", "[SEP]")).replace(" ##", "")


def draw_pairs(axes, pairs, aug_op):
    """Writes each original, and in grey below it what became of it."""
    axes.axis("off")
    axes.set_title(f"original, and what {aug_op} makes of it", fontsize=10)
    for number, pair in enumerate(pairs):
        for line, (text, color) in enumerate(zip(pair, ("black", "tab:red"))):
            wrapped = textwrap.wrap(text, LINE_WIDTH, max_lines=NUM_LINES, placeholder=" …")
            top = 1 - (number + line / 2) / len(pairs)
            axes.text(0, top, "\n".join(wrapped), color=color, fontsize=7, va="top", family="monospace")


def write_picture(path, runs, data_dir, aug_op):
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.5))
    report.draw_curves(axes[0], runs, "loss", "training loss")
    report.draw_curves(axes[1], runs, "test_accuracy", "test accuracy")
    draw_pairs(axes[2], read_pairs(data_dir, aug_op, NUM_PAIRS), aug_op)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def define_flags():
    flags.DEFINE_multi_string("run", None, "NAME=MODEL_DIR of a finished run; repeat for more.", required=True)
    flags.DEFINE_string("data_dir", None, "Records of the runs, for the augmented texts.", required=True)
    flags.DEFINE_string("aug_op", "tf_idf-0.7", "Augmentation to show.")
    flags.DEFINE_string("output", "report.png", "Picture to write; the table goes beside it, as .md and .csv.")


def main(_):
    try:
        runs = report.parse_runs(FLAGS.run)
        rows = report.collect(runs)
        print(report.format_table(rows))
        report.write_tables(os.path.splitext(FLAGS.output)[0], rows)
        write_picture(FLAGS.output, runs, FLAGS.data_dir, FLAGS.aug_op)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error
    print(f"curves and augmented texts: {FLAGS.output}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
