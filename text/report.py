"""Compares finished runs: a table of error rates, and a picture of their curves and of some augmented texts.

    python -m text.report --run="supervised=runs/a" --run="UDA=runs/b" --data_dir=data/imdb --aug_ops=tf_idf-0.7

A name may be given several times, with runs of other seeds: the table then has mean ± deviation.
"""

import textwrap

import tensorflow as tf

from text import record_format
from text.tokenization import read_vocab
from utils import cli, records, report

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


def draw_examples(axes, data_dir, aug_ops):
    """Writes some originals, and in red below each what became of it; `aug_ops` names one augmentation."""
    pairs = read_pairs(data_dir, aug_ops, NUM_PAIRS)
    axes.axis("off")
    axes.set_title(f"original, and what {aug_ops} makes of it", fontsize=10)
    for number, pair in enumerate(pairs):
        for line, (text, color) in enumerate(zip(pair, ("black", "tab:red"))):
            wrapped = textwrap.wrap(text, LINE_WIDTH, max_lines=NUM_LINES, placeholder=" …")
            top = 1 - (number + line / 2) / len(pairs)
            axes.text(0, top, "\n".join(wrapped), color=color, fontsize=7, va="top", family="monospace")


def define_flags():
    report.define_flags(aug_ops="tf_idf-0.7")


def main():
    report.write_report(draw_examples)


if __name__ == "__main__":
    cli.run(main, define_flags)
