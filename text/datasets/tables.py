"""Data sets in tables: Yelp, Amazon and DBpedia in their official CSV files, and a user's CSV, TSV or JSON lines."""

import functools
import itertools
import math
import os
from dataclasses import asdict, dataclass, replace

from text.datasets.lines import ENDINGS, find_file, read_lines
from text.datasets.source import Example, Facts, Source, clean, describe_files, find_raw
from utils import files

FAST_AI = "https://s3.amazonaws.com/fast-ai-nlp/"  # mirrors the CSV files of Zhang et al. (2015)
STARS = ("1 star", "2 stars", "3 stars", "4 stars", "5 stars")

POLARITY = ("negative", "positive")
DBPEDIA_CLASSES = (
    *("Company", "EducationalInstitution", "Artist", "Athlete", "OfficeHolder", "MeanOfTransportation", "Building"),
    *("NaturalPlace", "Village", "Animal", "Plant", "Album", "Film", "WrittenWork"),
)
# The columns of the reviews as published, in JSON lines.
YELP_REVIEWS, AMAZON_REVIEWS = {"unlabeled_columns": ("text",)}, {"unlabeled_columns": ("reviewText", "summary")}


def _describe(folder, *facts, **more):
    how_to_get = f"download {FAST_AI}{folder}.tgz and unpack it in raw_data_dir"
    return Facts(*facts, folder=folder, how_to_get=how_to_get, **more)


# Name, classes, whether there are titles, number of training and test examples. The files write the classes "1", "2", …
# in this order; their columns are label, title if there is one, text.
OFFICIAL = (
    _describe("yelp_review_polarity_csv", "yelp-2", POLARITY, False, 560_000, 38_000, **YELP_REVIEWS),
    _describe("yelp_review_full_csv", "yelp-5", STARS, False, 650_000, 50_000, **YELP_REVIEWS),
    _describe("amazon_review_polarity_csv", "amazon-2", POLARITY, True, 3_600_000, 400_000, **AMAZON_REVIEWS),
    _describe("amazon_review_full_csv", "amazon-5", STARS, True, 3_000_000, 650_000, **AMAZON_REVIEWS),
    _describe("dbpedia_csv", "dbpedia", DBPEDIA_CLASSES, True, 560_000, 70_000),
)
OFFICIAL = {facts.name: facts for facts in OFFICIAL}


@dataclass(frozen=True)
class Table:
    """A file of records and the columns to read: their names, or their positions in a file without a header."""

    path: str
    text: str
    title: str = ""
    label: str = ""
    width: int = 0  # columns of each record; 0: as many as the first one has

    def without_label(self):
        return replace(self, label="")


# ---- sources --------------------------------------------------------------------------------------------------------


def open_official(config):
    """The files of Zhang et al.; an unlabeled_file holds reviews as published, as in the paper (appendix, Datasets)."""
    facts = OFFICIAL[config.task_name]
    columns = {"label": "0", "title": "1", "text": "2"} if facts.has_title else {"label": "0", "text": "1"}
    tables = {}
    for split in ("train", "test"):
        path = find_raw(config, facts, f"{split}.csv", f"{facts.folder}/{split}.csv")
        tables[split] = Table(path, **columns, width=len(columns))
    classes = {str(number): number - 1 for number in range(1, facts.num_classes + 1)}
    # Empty texts stay: the official test set is what others report their error rates on.
    read = functools.partial(read_examples, classes=classes, keep_empty=True)
    sizes = {"train": facts.train_size, "test": facts.test_size}
    if config.unlabeled_file:
        unlabeled = Table(find_file("unlabeled_file", config.unlabeled_file), *facts.unlabeled_columns)
        read_unlabeled = functools.partial(read_examples, unlabeled, "unlabeled")
    else:
        unlabeled = tables["train"].without_label()
        read_unlabeled = functools.partial(read, unlabeled, "train")
        sizes["unlabeled"] = facts.train_size
    return _create_source(facts, tables, read, unlabeled, read_unlabeled, {} if config.allow_partial else sizes)


def open_user_files(config):
    """A user's own files; test_file and unlabeled_file may be left out."""
    columns = {"text": config.text_column, "title": config.title_column, "label": config.label_column}
    for name in ("text", "label"):
        if not columns[name]:
            raise ValueError(f"{name}_column is empty: expected the name of a column, or its position from 0")
    tables = {"train": Table(find_file("train_file", config.train_file), **columns)}
    if getattr(config, "test_file", ""):
        tables["test"] = Table(find_file("test_file", config.test_file), **columns)
    unlabeled, name = tables["train"].without_label(), "train"
    if config.unlabeled_file:
        unlabeled, name = replace(unlabeled, path=find_file("unlabeled_file", config.unlabeled_file)), "unlabeled"
    class_names = find_class_names(tables["train"])
    classes = {name: label for label, name in enumerate(class_names)}
    read = functools.partial(read_examples, classes=classes)
    facts = Facts("csv", class_names, has_title=bool(config.title_column))
    return _create_source(facts, tables, read, unlabeled, functools.partial(read_examples, unlabeled, name), {})


def _create_source(facts, tables, read, unlabeled, read_unlabeled, sizes):
    readers = {split: functools.partial(read, table, split) for split, table in tables.items()}
    identify = functools.partial(_identify, unlabeled, facts.name)
    return Source(facts, readers | {"unlabeled": read_unlabeled}, identify, sizes)


def _identify(table, name):
    return [name, describe_files(table.path), asdict(table) | {"path": ""}]


def find_class_names(table):
    """The different labels of a file: in the order of their values if all are numbers, else of their letters."""
    names = sorted({label for _, _, _, label in read_records(table)})
    if len(names) < 2:
        raise ValueError(f"{table.path} has {len(names)} classes in label_column={table.label!r}: expected 2 or more")
    if all(is_number(name) for name in names):
        names.sort(key=float)
        _refuse_equal_numbers(table, names)
    return tuple(names)


def _refuse_equal_numbers(table, names):
    equal = [pair for pair in itertools.pairwise(names) if float(pair[0]) == float(pair[1])]
    if equal:
        raise ValueError(
            f"{table.path} writes one number in several ways in label_column={table.label!r}, such as "
            f"{' and '.join(map(files.shorten, equal[0]))}, which would be two classes: write it in one way"
        )


def is_number(text):
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


# ---- examples -------------------------------------------------------------------------------------------------------


def read_examples(table, name, classes=None, keep_empty=False):
    """Yields an Example for each record of a table, and None for each unlabelled one without text.

    Args:
      name: begins the keys; they end with the line on which a record starts.
      classes: dict from label as written to class; needed if the table has a label column.
      keep_empty: keep records without text. Otherwise one with a label is an error.
    """
    for line, text, title, label in read_records(table):
        if table.label and label not in classes:
            known, found = files.join_names(classes, 20), files.shorten(label)
            raise ValueError(f"{table.path}, line {line}: label={found}: expected one of the classes {known}")
        text, title = clean(text), clean(title) if table.title else None
        if text or title or keep_empty:
            yield Example(f"{name}/{line}", text, title, classes[label] if table.label else -1)
        elif table.label:
            raise ValueError(f"{table.path}, line {line}: a labelled example without text: remove it or add its text")
        else:
            yield None


def read_records(table):
    """Yields (line, text, title, label) as written; title and label are "" if the table has none."""
    columns = {name: getattr(table, name) for name in ("text", "title", "label") if getattr(table, name)}
    _refuse_one_column_twice(columns)
    ending = os.path.basename(table.path).removesuffix(".gz").rpartition(".")[2]
    if ending not in ENDINGS:
        raise ValueError(f"{table.path}: unknown kind of file: expected the ending {', '.join(ENDINGS)}, also with .gz")
    for line, values in ENDINGS[ending](table.path, columns, table.width):
        record = dict(zip(columns, values))
        label = record.get("label", "").strip()
        if table.label and not label:
            raise ValueError(f"{table.path}, line {line}: no label. Texts without labels go into unlabeled_file")
        yield line, record["text"], record.get("title", ""), label


def _refuse_one_column_twice(columns):
    for (first, column), (second, other) in itertools.combinations(columns.items(), 2):
        if column == other:
            raise ValueError(f"{first}_column={column!r} and {second}_column={other!r}: expected different columns")


def is_plain(path):
    """Whether it is a .txt file, which has one text a line and no titles."""
    return str(path).removesuffix(".gz").endswith(".txt")


def check_text_column(text_column):
    if not text_column:
        raise ValueError("text_column='': expected the name of a column, or its position in a file without a header.")


def read_texts(path, text_column, title_column):
    """The (text, title) pairs as written, of a table or of a .txt file."""
    if is_plain(path):
        return ((line.rstrip("\r\n"), "") for line in read_lines(path))
    check_text_column(text_column)
    return ((text, title) for _, text, title, _ in read_records(Table(path, text_column, title_column)))
