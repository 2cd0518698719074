"""Keeps the texts of a large pool that a trained model is most confident about, equally many of each class.

    python -m text.filter_domain --model_dir=runs/mine --pool=reviews.jsonl.gz --num_per_class=10000 \
        --output=filtered.jsonl.gz
    python -m text.preprocess --task_name=csv --unlabeled_file=filtered.jsonl.gz ...

The pool may be larger than the memory. A stopped run is taken up by the same command.
"""

import contextlib
import gzip
import hashlib
import itertools
import json
import os

from tqdm import tqdm

from text import export
from text.datasets import tables
from text.datasets.source import clean, take
from utils import cli, domain_filter, files, locks, settings
from utils.settings import config_class, setting


@config_class()
class Config(domain_filter.FilterConfig):
    output: str = setting("", "File for the kept texts, .jsonl or .jsonl.gz.")
    text_column: str = setting("text", "Column of the text in the pool; a number without a header.")
    title_column: str = setting("", "Column of the title in the pool, where the training had titles.")
    output_columns: str = setting(
        "", "Names of the text (and title) columns in the output; default those of the task, or of the pool."
    )

    # Texts of one block are scored in the order of their lengths, so that little is padding.
    batches_per_block, required = 32, ("model_dir", "pool", "output")

    def __post_init__(self):
        super().__post_init__()
        if not self.output.removesuffix(".gz").endswith((".jsonl", ".json")):
            raise ValueError(f"output={self.output!r}: expected a name that ends in .jsonl or .jsonl.gz.")
        tables.check_text_column(self.text_column)


# ---- the pool -------------------------------------------------------------------------------------------------------


def check_pool(config, facts):
    """Returns the path of the pool; raises ValueError if the model cannot be used on it."""
    pool, title_column = config.pool, config.title_column
    if not files.is_file(pool):
        raise ValueError(f"pool={pool!r} does not exist: expected a .txt, .csv, .tsv or .jsonl file, also with .gz.")
    if bool(title_column) != facts.has_title:
        advice = "give the --title_column of the pool" if facts.has_title else "leave --title_column out"
        trained = "with" if facts.has_title else "without"
        raise ValueError(f"title_column={title_column!r}: the model was trained {trained} titles, so {advice}.")
    if title_column and tables.is_plain(pool):
        raise ValueError(
            f"pool={pool!r} has one text a line and no titles: the model needs a .csv, .tsv or .jsonl file."
        )
    return pool


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


def choose_columns(config, facts):
    """Names of the text and title columns of the output: those that text.preprocess reads for the model's task."""
    if config.output_columns:
        columns = tuple(name.strip() for name in config.output_columns.split(","))
        if len(columns) != 1 + facts.has_title:
            expected = "two, as in text,title" if facts.has_title else "one, as in text"
            raise ValueError(f"output_columns={config.output_columns}: expected {expected}.")
        return columns
    official = tables.OFFICIAL.get(facts.name)
    if official and official.unlabeled_columns:
        return official.unlabeled_columns
    return (config.text_column, config.title_column)[: 1 + facts.has_title]


def write_kept(path, examples, kept, class_names, columns):
    """Writes the kept texts in the order of the pool, one JSON object a line, with predicted class and probability."""
    advice = "make room; the same command goes on from what is finished."
    with contextlib.ExitStack() as stack:
        stack.enter_context(files.explain_refusal(path, advice))
        raw = stack.enter_context(files.replacing(path, "wb"))
        # Without time and name in it, so that the same texts make the same file.
        file = stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0)) if path.endswith(".gz") else raw
        examples = take(examples, kept.positions)
        for label, probability, example in zip(kept.labels, kept.probabilities, examples):
            record = dict(zip(columns, example)) | {"label": class_names[label], "probability": round(probability, 6)}
            file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())


# ---- from the command line ------------------------------------------------------------------------------------------


def filter_pool(config):
    """Writes the kept texts to `output`, their summary to <output>.json and a picture to <output>.png.

    Returns:
      the summary, see utils.domain_filter.summarize.
    """
    facts, predict_proba, fingerprint = domain_filter.load_model(export.load, config.model_dir)
    path, columns = check_pool(config, facts), choose_columns(config, facts)
    folder, name = os.path.split(config.output)
    files.make_folder(folder)

    def read(start=0):
        """Yields (text, title) of each example as it is written, and None for each without text."""
        pairs = itertools.islice(tables.read_texts(path, config.text_column, config.title_column), start, None)
        return ((text, title) if clean(text) or clean(title) else None for text, title in pairs)

    def predict(examples):
        texts, titles = zip(*examples)
        return predict_proba(texts, titles if facts.has_title else None, batch_size=config.batch_size)

    advice = "wait for its end, or choose another --output."
    with locks.hold(folder or ".", "another filtering", advice, name=f".{name}.lock"):
        files.remove_leftovers(*(f"{config.output}{end}" for end in ("", ".state.npz", ".json")))
        num_texts, checksum = survey(read())
        identity, state_path = {"pool": checksum, "model": fingerprint}, f"{config.output}.state.npz"
        selection = domain_filter.select(read, num_texts, predict, facts.num_classes, config, state_path, identity)
        write_kept(config.output, read(), selection.kept(), facts.class_names, columns)
        return domain_filter.write_summary(config.output, config, selection, facts.class_names)


def define_flags():
    settings.define_flags(Config)


def main():
    config = settings.from_flags(Config)
    print(domain_filter.describe(filter_pool(config)))
    print(f"the kept texts are in {config.output}")


if __name__ == "__main__":
    cli.run(main, define_flags)
