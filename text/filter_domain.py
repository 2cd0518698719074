"""Keeps the texts of a large pool that a trained model is most confident about, equally many of each class.

    python -m text.filter_domain --model_dir=runs/mine --pool=reviews.jsonl.gz --num_per_class=10000 \
        --output=filtered.jsonl.gz
    python -m text.preprocess --task_name=csv --unlabeled_file=filtered.jsonl.gz ...

The pool may be larger than the memory. A stopped run is taken up by the same command.
"""

import gzip
import hashlib
import json
import os
from pathlib import Path

import tensorflow as tf
from absl import app, flags
from tqdm import tqdm

from text import datasets, export
from utils import domain_filter, run_dir

FLAGS = flags.FLAGS
BATCHES_PER_BLOCK = 32  # texts of one block are scored in the order of their lengths, so that little is padding


# ---- the pool -------------------------------------------------------------------------------------------------------


def read_pool(path, text_column, title_column):
    """Yields (text, title) of each example as it is written, and None for each without text."""
    if path.name.removesuffix(".gz").endswith(".txt"):
        pairs = ((line.rstrip("\r\n"), "") for line in datasets.read_lines(path))
    else:
        table = datasets.Table(path, text_column, title_column)
        pairs = ((text, title) for _, text, title, _ in datasets.read_records(table))
    for text, title in pairs:
        yield (text, title) if datasets.clean(text) or datasets.clean(title) else None


def check_pool(pool, text_column, title_column, facts):
    """Returns the path of the pool; raises ValueError if the model cannot be used on it."""
    path = Path(pool)
    if not path.is_file():
        raise ValueError(f"pool={pool!r} does not exist: expected a .txt, .csv, .tsv or .jsonl file, also with .gz.")
    if bool(title_column) != facts.has_title:
        advice = "give the --title_column of the pool" if facts.has_title else "leave --title_column out"
        trained = "with" if facts.has_title else "without"
        raise ValueError(f"title_column={title_column!r}: the model was trained {trained} titles, so {advice}.")
    if not text_column:
        raise ValueError("text_column='': expected the name of a column, or its position in a file without a header.")
    if title_column and path.name.removesuffix(".gz").endswith(".txt"):
        raise ValueError(
            f"pool={pool!r} has one text a line and no titles: the model needs a .csv, .tsv or .jsonl file."
        )
    return path


def survey(examples):
    """Reads the whole pool once, so that errors in it come before hours of scoring. Returns its size and checksum."""
    digest, count = hashlib.sha256(), 0
    for example in tqdm(examples, unit="text", desc="reading the pool"):
        digest.update(json.dumps(example).encode())
        count += 1
    if not count:
        raise ValueError("The pool is empty: expected at least one text.")
    return count, digest.hexdigest()


# ---- the output -----------------------------------------------------------------------------------------------------


def choose_columns(facts, text_column, title_column, output_columns):
    """Names of the text and title columns of the output: those that text.preprocess reads for the model's task."""
    if output_columns:
        if len(output_columns) != 1 + facts.has_title:
            expected = "two, as in text,title" if facts.has_title else "one, as in text"
            raise ValueError(f"output_columns={','.join(output_columns)}: expected {expected}.")
        return tuple(output_columns)
    official = datasets.DATASETS.get(facts.name)
    if official and official.unlabelled_columns:
        return official.unlabelled_columns
    return (text_column, title_column) if facts.has_title else (text_column,)


def write_kept(path, examples, kept, class_names, columns):
    """Writes the kept texts in the order of the pool, one JSON object a line, with predicted class and probability."""
    temporary = f"{path}.tmp"
    with open(temporary, "wb") as raw:
        # Without time and name in it, so that the same texts make the same file.
        file = gzip.GzipFile("", "wb", 6, raw, mtime=0) if path.endswith(".gz") else raw
        for label, probability, example in zip(
            kept.labels, kept.probabilities, domain_filter.take(examples, kept.positions)
        ):
            record = {"label": class_names[label], "probability": round(probability, 6)}
            record = dict(zip(columns, example)) | record
            file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
        if file is not raw:
            file.close()
    os.replace(temporary, path)


# ---- from the command line ------------------------------------------------------------------------------------------


def load_model(model_dir):
    """Returns facts, predict_proba and what tells this exported model from others."""
    export_dir = os.path.join(model_dir, "export")
    return *export.load(export_dir), tf.saved_model.experimental.read_fingerprint(export_dir).singleprint()


def filter_pool(
    model_dir,
    pool,
    output,
    num_per_class,
    *,
    min_probability=0.0,
    text_column="text",
    title_column="",
    output_columns=(),
    batch_size=32,
):
    """Writes the kept texts to `output`, their summary to <output>.json and a picture to <output>.png.

    Returns:
      the summary, see utils.domain_filter.summarize.
    """
    if not output.removesuffix(".gz").endswith((".jsonl", ".json")):
        raise ValueError(f"output={output!r}: expected a name that ends in .jsonl or .jsonl.gz.")
    facts, predict_proba, fingerprint = load_model(model_dir)
    path = check_pool(pool, text_column, title_column, facts)
    columns = choose_columns(facts, text_column, title_column, output_columns)
    os.makedirs(os.path.dirname(output) or ".", exist_ok=True)

    def read(start=0):
        examples = read_pool(path, text_column, title_column)
        for _ in range(start):
            next(examples)
        return examples

    def predict(examples):
        texts, titles = zip(*examples)
        return predict_proba(texts, titles if facts.has_title else None, batch_size=batch_size)

    num_texts, checksum = survey(read())
    selection = domain_filter.select(
        read,
        num_texts,
        predict,
        facts.num_classes,
        num_per_class,
        min_probability,
        block_size=BATCHES_PER_BLOCK * batch_size,
        state_path=f"{output}.state.npz",
        settings={"pool": checksum, "model": fingerprint},
    )
    write_kept(output, read(), selection.kept(), facts.class_names, columns)
    summary = domain_filter.summarize(selection, facts.class_names)
    run_dir.write_json(f"{output}.json", {"pool": pool, "model_dir": model_dir, **summary})
    domain_filter.draw_histogram(f"{output}.png", selection, facts.class_names)
    return summary


def define_flags():
    flags.DEFINE_string("model_dir", None, "Folder of the run whose exported model scores the pool.", required=True)
    flags.DEFINE_string(
        "pool", None, "Texts: .txt with one a line, .csv, .tsv or .jsonl, also with .gz.", required=True
    )
    flags.DEFINE_string("text_column", "text", "Column of the text in the pool; a number without a header.")
    flags.DEFINE_string("title_column", "", "Column of the title in the pool, where the training had titles.")
    flags.DEFINE_integer("num_per_class", None, "Most texts to keep of each class.", lower_bound=1, required=True)
    flags.DEFINE_float("min_probability", 0.0, "Keep no text that is less probable.", lower_bound=0.0, upper_bound=1.0)
    flags.DEFINE_string("output", None, "File for the kept texts, .jsonl or .jsonl.gz.", required=True)
    flags.DEFINE_list(
        "output_columns",
        [],
        "Names of the text (and title) columns in the output, as text.preprocess shall read them; default those of "
        "the task, or of the pool.",
    )
    flags.DEFINE_integer("batch_size", 32, "Texts that go through the network at once.", lower_bound=1)


def main(_):
    names = ("model_dir", "pool", "output", "num_per_class", "min_probability", "text_column", "title_column")
    names += ("output_columns", "batch_size")
    try:
        summary = filter_pool(**{name: FLAGS[name].value for name in names})
    except (ValueError, OSError, tf.errors.ResourceExhaustedError) as error:  # the last: a full device
        raise SystemExit(f"error: {error}") from error
    print(domain_filter.describe(summary))
    print(f"the kept texts are in {FLAGS.output}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
