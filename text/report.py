"""One page that shows a run, or compares several, with texts: utils/report.py, and docs/report.md, tell what is on it.

    python -m text.report --run="supervised=runs/a" --run="UDA=runs/b" --data_dir=data/imdb --aug_ops=tf_idf-0.7

A name may be given several times, with runs of other seeds: the table then has mean ± deviation.
"""

import difflib
import os

import tensorflow as tf

from augmentation import text_ops
from text import record_format
from text.config import DataConfig
from text.tokenization import read_vocab
from utils import cli, examples, page, records, report, settings

NUM_PAIRS, MOST_WORDS = 6, 90


# ---- reading --------------------------------------------------------------------------------------------------------


def read_pairs(data_dir, aug_op, num_pairs):
    """The first originals and their augmentations, as text: a list of pairs."""
    set_dir = record_format.copy_dir(data_dir, aug_op, 0)
    record_set = records.read_set(set_dir, {}, "Run `python -m text.preprocess --data_type=unsup` first.")
    serialized = next(iter(tf.data.TFRecordDataset(record_set.paths).batch(num_pairs)))
    return list(zip(*(read_texts(data_dir, serialized, view) for view in record_format.VIEWS)))


def read_rows(data_dir, rows):
    """Some texts of the test set."""
    advice = "Run `python -m text.preprocess` first."
    return read_texts(data_dir, records.read_rows(os.path.join(data_dir, "test"), rows, advice), "original")


def read_texts(data_dir, serialized, view):
    vocab = read_vocab(record_format.vocab_path(data_dir))
    pieces = record_format.parse(serialized, [view])[view]["pieces"]
    return [join_pieces(vocab, tf.io.decode_raw(text, tf.int32).numpy()) for text in pieces]


def join_pieces(vocab, ids):
    """Readable text out of word pieces, without [CLS] and [SEP]."""
    pieces = [vocab[number] for number in ids]
    return " ".join(piece for piece in pieces if piece not in ("[CLS]", "[SEP]")).replace(" ##", "")


# ---- showing --------------------------------------------------------------------------------------------------------


def mark_changes(original, augmented):
    """Both texts as HTML, with the words marked that only one of them has."""
    words = original.split()[:MOST_WORDS], augmented.split()[:MOST_WORDS]
    matcher, shown = difflib.SequenceMatcher(None, *words, autojunk=False), ([], [])
    for kind, *places in matcher.get_opcodes():
        for side, (start, end) in enumerate((places[:2], places[2:])):
            part = page.escape(" ".join(words[side][start:end]))
            shown[side].append(part if kind == "equal" or not part else f"<mark>{part}</mark>")
    return tuple(" ".join(filter(None, parts)) for parts in shown)


def shorten(text):
    words = text.split()
    return " ".join(words[:MOST_WORDS]) + " …" * (len(words) > MOST_WORDS)


def show_pairs(run, data_dir="", aug_ops=""):
    """Originals and their augmentations; `data_dir` and `aug_ops` may name others than those of the run."""
    config = read_config(run)
    aug_op = text_ops.split_ops(aug_ops or config.aug_ops)[0]
    items = []
    for pair in read_pairs(data_dir or config.data_dir, aug_op, NUM_PAIRS):
        original, augmented = mark_changes(*pair)
        items.append(f'<li><p>{original}</p><p class="soft">{augmented}</p></li>')
    note = page.paragraph(f"First the original, below it what {aug_op} makes of it; changed words are marked.")
    return f'{note}<ul class="card texts">{"".join(items)}</ul>'


def show_rows(run, rows):
    items = [
        f"<li><p>{page.escape(shorten(text))}</p>{examples.describe(run.evaluation, row)}</li>"
        for row, text in zip(rows, read_rows(read_config(run).data_dir, rows))
    ]
    return f'<ul class="card texts">{"".join(items)}</ul>'


def read_config(run):
    """The settings of the records that a run was trained on."""
    if run.config.get("task_name") == "features":
        raise ValueError("features are not shown.")
    return settings.from_stored(DataConfig, run.config)


def write_run_page(model_dir):
    report.write_run_page(model_dir, show_pairs, show_rows)


# ---- the program ----------------------------------------------------------------------------------------------------


def define_flags():
    report.define_flags(has_examples=True)


def main():
    report.main(show_pairs, show_rows)


if __name__ == "__main__":
    cli.run(main, define_flags)
