"""Raw text files to examples: IMDb, Yelp, Amazon and DBpedia in their official form, or a user's CSV, TSV, JSON lines.

source = open_source("imdb", "data/raw/imdb")
labelled = choose_labelled(source, sup_size=20)
dev = choose_dev(source, labelled, dev_size=100)
for example in source.read("unlabelled"): ...
"""

import collections
import csv
import functools
import gzip
import hashlib
import json
import math
import os
import re
import tarfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

# `text` is cleaned; `title` is None in data sets without titles; `label` is -1 where there is none.
Example = collections.namedtuple("Example", "key text title label")

FAST_AI = "https://s3.amazonaws.com/fast-ai-nlp/"  # mirrors the CSV files of Zhang et al. (2015)


@dataclass(frozen=True)
class Facts:
    """What is fixed about a data set. In CSV files of Zhang et al. the classes are written "1", "2", ... in order."""

    name: str
    class_names: tuple[str, ...]
    has_title: bool = False  # columns label, title, text; else label, text
    train_size: int = 0  # 0: any number
    test_size: int = 0
    unsup_size: int = 0  # examples without a label that come with the training set
    min_unsup_length: int = 0  # shorter ones of them are left out, counted in characters
    labelled_ids: tuple[str, ...] = ()  # the published labelled subset, where there is one
    unlabelled_columns: tuple[str, ...] = ()  # text and title in the JSON lines of the external unlabelled set
    folder: str = ""  # what the official archive unpacks to
    how_to_get: str = ""

    @property
    def num_classes(self):
        return len(self.class_names)


STARS = ("1 star", "2 stars", "3 stars", "4 stars", "5 stars")

DATASETS = {
    "imdb": Facts(
        name="imdb",
        class_names=("pos", "neg"),
        train_size=25_000,
        test_size=25_000,
        unsup_size=50_000,
        min_unsup_length=500,
        labelled_ids=(
            *("9716_10", "839_7", "1047_8", "1612_10", "6836_9", "12323_10", "8710_7", "2659_8", "1404_10", "4722_8"),
            *("9851_1", "4681_4", "3386_2", "6068_4", "11186_2", "362_3", "135_4", "2461_4", "3728_1", "11575_1"),
        ),
        folder="aclImdb",
        how_to_get="run: bash scripts/download_imdb.sh <raw_data_dir>",
    ),
    "yelp-2": Facts(
        name="yelp-2",
        class_names=("negative", "positive"),
        train_size=560_000,
        test_size=38_000,
        unlabelled_columns=("text",),
        folder="yelp_review_polarity_csv",
        how_to_get=f"download {FAST_AI}yelp_review_polarity_csv.tgz and unpack it in raw_data_dir",
    ),
    "yelp-5": Facts(
        name="yelp-5",
        class_names=STARS,
        train_size=650_000,
        test_size=50_000,
        unlabelled_columns=("text",),
        folder="yelp_review_full_csv",
        how_to_get=f"download {FAST_AI}yelp_review_full_csv.tgz and unpack it in raw_data_dir",
    ),
    "amazon-2": Facts(
        name="amazon-2",
        class_names=("negative", "positive"),
        has_title=True,
        train_size=3_600_000,
        test_size=400_000,
        unlabelled_columns=("reviewText", "summary"),
        folder="amazon_review_polarity_csv",
        how_to_get=f"download {FAST_AI}amazon_review_polarity_csv.tgz and unpack it in raw_data_dir",
    ),
    "amazon-5": Facts(
        name="amazon-5",
        class_names=STARS,
        has_title=True,
        train_size=3_000_000,
        test_size=650_000,
        unlabelled_columns=("reviewText", "summary"),
        folder="amazon_review_full_csv",
        how_to_get=f"download {FAST_AI}amazon_review_full_csv.tgz and unpack it in raw_data_dir",
    ),
    "dbpedia": Facts(
        name="dbpedia",
        class_names=(
            *("Company", "EducationalInstitution", "Artist", "Athlete", "OfficeHolder", "MeanOfTransportation"),
            *("Building", "NaturalPlace", "Village", "Animal", "Plant", "Album", "Film", "WrittenWork"),
        ),
        has_title=True,
        train_size=560_000,
        test_size=70_000,
        folder="dbpedia_csv",
        how_to_get=f"download {FAST_AI}dbpedia_csv.tgz and unpack it in raw_data_dir",
    ),
}
USER_FILES = "csv"  # the task_name of a user's own files
TASK_NAMES = (*DATASETS, USER_FILES)

LINK = re.compile(r"<a href=[^>]*>|<a href=|</a>")


def clean(text):
    """Takes out the markup that the official files carry; a literal backslash-n is how their CSV writes a new line."""
    text = text.replace("<br />", " ").replace("&quot;", '"').replace("<p>", " ")
    if "<a href=" in text:
        text = LINK.sub("", text)
    return text.replace("\\n", " ").replace("\\", " ").strip()


@dataclass(frozen=True)
class Source:
    """Where the examples of a data set come from. Small and picklable: it holds file names and no texts."""

    facts: Facts
    readers: dict  # split -> function without arguments: an iterator of Example, with None for each that is left out
    sizes: dict  # split -> number of examples, those left out included, where it has to be a certain one
    _counted: dict = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self):
        return self.__dict__ | {"_counted": {}}

    @property
    def splits(self):
        return tuple(self.readers)

    def read(self, split):
        """Yields the examples of "train", "test" or "unlabelled", always in the same order."""
        return (example for example in self._read_all(split) if example is not None)

    def labels(self, split):
        """Labels of all examples that read(split) yields, int64 [N]. Reads the files once."""
        if ("labels", split) not in self._counted:
            labels = np.fromiter((example.label for example in self.read(split)), np.int64)
            self._counted["labels", split] = labels
        return self._counted["labels", split]

    def num_examples(self, split):
        """How many examples read(split) yields. Reads the files once and reports how many texts they lack."""
        if ("size", split) not in self._counted:
            total = collections.Counter(example is None for example in self._read_all(split))
            if total[True]:
                print(f"{self.facts.name}: left out {total[True]} of {total.total()} {split} texts, empty or too short")
            self._counted["size", split] = total[False]
        return self._counted["size", split]

    def _read_all(self, split):
        if split not in self.readers:
            raise ValueError(f"split={split!r} does not exist: {self.facts.name} has {', '.join(self.readers)} here")
        return self._checked(split)

    def _checked(self, split):
        """Yields what the reader yields, and refuses a number of examples that is not the official one."""
        total = used = 0
        for example in self.readers[split]():
            total += 1
            used += example is not None
            yield example
        if not used:
            raise ValueError(f"{self.facts.name} has no {split} examples: its files hold no text")
        if total != self.sizes.get(split, total):
            raise ValueError(
                f"The {split} files of {self.facts.name} hold {total} examples, but the official ones "
                f"{self.sizes[split]}. Remove them and {self.facts.how_to_get}; allow_partial takes what there is"
            )


def open_source(
    task_name,
    raw_data_dir="",
    *,
    train_file="",
    test_file="",
    unlabeled_file="",
    text_column="text",
    title_column="",
    label_column="label",
    allow_partial=False,
):
    """Finds the files of a data set.

    Args:
      task_name: one of TASK_NAMES; "csv" for a user's own files.
      raw_data_dir: folder with the official files; not used for "csv".
      train_file, test_file: for "csv" only. Files end in .csv, .tsv, .jsonl or .json (one object a line), or one of
        these and .gz. test_file may be left out.
      unlabeled_file: texts that take the place of the training texts as the unlabelled set. For Yelp and Amazon, the
        reviews as published in JSON lines, as in the paper (appendix, "Datasets").
      text_column, title_column, label_column: for "csv" only: names of columns, or positions from 0 in files without
        a header. title_column may be left out.
      allow_partial: take what there is when the official files hold another number of examples.
    """
    if task_name not in TASK_NAMES:
        raise ValueError(f"task_name={task_name!r} is unknown: use one of {', '.join(TASK_NAMES)}")
    if task_name == USER_FILES:
        return _open_user_files(train_file, test_file, unlabeled_file, text_column, title_column, label_column)
    if train_file or test_file:
        raise ValueError(
            f"train_file={str(train_file)!r} and test_file={str(test_file)!r} are for task_name={USER_FILES!r}: "
            f"{task_name} is read from raw_data_dir={str(raw_data_dir)!r}"
        )
    facts = DATASETS[task_name]
    if unlabeled_file and not facts.unlabelled_columns:
        known = ", ".join(name for name in TASK_NAMES if name == USER_FILES or DATASETS[name].unlabelled_columns)
        raise ValueError(f"unlabeled_file={str(unlabeled_file)!r} is not for {task_name}: it can be used with {known}")
    open_official = _open_imdb if task_name == "imdb" else _open_official_tables
    return open_official(facts, Path(raw_data_dir), unlabeled_file, allow_partial)


def _first_existing(facts, raw_data_dir, paths):
    for path in paths:
        if path.exists():
            return path
    looked_for = " or ".join(str(path) for path in paths)
    raise ValueError(
        f"No {facts.name} in raw_data_dir={str(raw_data_dir)!r}: looked for {looked_for}. To get it, {facts.how_to_get}"
    )


# ---- IMDb -----------------------------------------------------------------------------------------------------------
# Reviews are ordered by part (neg, pos, unsup) and number, in the folder as in the archive: train/neg/0_3.txt is the
# first of all. Neither listdir nor the archive has an order of its own to rely on.

IMDB_ARCHIVE = "aclImdb_v1.tar.gz"
IMDB_ARCHIVE_MD5 = "7c2ac02c03563afcf9b574c7e56c153a"
IMDB_REVIEW = re.compile(r"(\d+)_(\d+)\.txt")
IMDB_PARTS = {
    "train": ("train/neg", "train/pos"),
    "test": ("test/neg", "test/pos"),
    "unlabelled": ("train/neg", "train/pos", "train/unsup"),
}


def _open_imdb(facts, raw_data_dir, unlabeled_file, allow_partial):
    paths = [raw_data_dir / facts.folder / "train", raw_data_dir / "train", raw_data_dir / IMDB_ARCHIVE]
    found = _first_existing(facts, raw_data_dir, paths)
    path = found if found.name == IMDB_ARCHIVE else found.parent
    sizes = {"train": facts.train_size, "test": facts.test_size, "unlabelled": facts.train_size + facts.unsup_size}
    md5 = "" if allow_partial else IMDB_ARCHIVE_MD5
    readers = {split: functools.partial(read_imdb, facts, path, md5, split) for split in IMDB_PARTS}
    return Source(facts, readers, {} if allow_partial else sizes)


def read_imdb(facts, path, md5, split):
    contents = _imdb_archive(path, md5, split) if path.is_file() else _imdb_folder(path, split)
    for key, content in contents:
        part = key.split("/")[1]
        text = clean(decode(content, f"{path}, {key}"))
        too_short = part == "unsup" and len(text) < facts.min_unsup_length
        label = -1 if split == "unlabelled" else facts.class_names.index(part)
        yield None if too_short else Example(key, text, None, label)


def imdb_order(key):
    """What to sort keys such as train/pos/9716_10.txt by, or None for other files."""
    part, _, name = key.rpartition("/")
    match = IMDB_REVIEW.fullmatch(name)
    return match and (part, int(match[1]), int(match[2]))


def _imdb_folder(path, split):
    """Yields (key, bytes) in order, one file at a time."""
    for part in IMDB_PARTS[split]:
        names = os.listdir(path / part) if (path / part).is_dir() else []
        for key in sorted(filter(imdb_order, (f"{part}/{name}" for name in names)), key=imdb_order):
            yield key, (path / key).read_bytes()


def _imdb_archive(path, md5, split):
    """Yields (key, bytes) in order. Going back in a compressed file means to start over: it is read once, into memory.

    That takes 100 MB at most, which only IMDb is small enough for.
    """
    if md5:
        with open(path, "rb") as file:
            found = hashlib.md5(usedforsecurity=False)
            while block := file.read(1 << 20):
                found.update(block)
        if found.hexdigest() != md5:
            raise _damaged_archive(path, f"expected md5={md5}, found md5={found.hexdigest()}")
    contents = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                key = member.name.partition("/")[2]
                if key.rpartition("/")[0] in IMDB_PARTS[split] and imdb_order(key):
                    contents[key] = archive.extractfile(member).read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise _damaged_archive(path, f"reading it fails with {type(error).__name__}: {error}") from error
    for key in sorted(contents, key=imdb_order):
        yield key, contents.pop(key)


def _damaged_archive(path, reason):
    return ValueError(f"{path} is not the official archive: {reason}. Remove it and {DATASETS['imdb'].how_to_get}")


# ---- tables: the other official files and a user's own -----------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A file of records and the columns to read: their names, or their positions in a file without a header."""

    path: Path
    text: str
    title: str = ""
    label: str = ""
    width: int = 0  # columns of each record; 0: as many as the first one has

    def without_label(self):
        return Table(self.path, self.text, self.title, "", self.width)


def _open_official_tables(facts, raw_data_dir, unlabeled_file, allow_partial):
    columns = {"label": "0", "title": "1", "text": "2"} if facts.has_title else {"label": "0", "text": "1"}
    tables = {}
    for split in ("train", "test"):
        paths = [raw_data_dir / f"{split}.csv", raw_data_dir / facts.folder / f"{split}.csv"]
        tables[split] = Table(_first_existing(facts, raw_data_dir, paths), **columns, width=len(columns))
    classes = {str(number): number - 1 for number in range(1, facts.num_classes + 1)}
    # Empty texts stay: the official test set is what others report their error rates on.
    read = functools.partial(read_examples, classes=classes, keep_empty=True)
    readers = {split: functools.partial(read, table, split) for split, table in tables.items()}
    readers["unlabelled"] = functools.partial(read, tables["train"].without_label(), "train")
    sizes = {"train": facts.train_size, "test": facts.test_size, "unlabelled": facts.train_size}
    if unlabeled_file:
        external = Table(_user_file("unlabeled_file", unlabeled_file), *facts.unlabelled_columns)
        readers["unlabelled"] = functools.partial(read_examples, external, "unlabelled")
        del sizes["unlabelled"]
    return Source(facts, readers, {} if allow_partial else sizes)


def _open_user_files(train_file, test_file, unlabeled_file, text_column, title_column, label_column):
    columns = {"text": text_column, "title": title_column, "label": label_column}
    for name in ("text", "label"):
        if not columns[name]:
            raise ValueError(f"{name}_column is empty: expected the name of a column, or its position from 0")
    files = {"train": _user_file("train_file", train_file)}
    files |= {"test": _user_file("test_file", test_file)} if test_file else {}
    unlabelled_path = _user_file("unlabeled_file", unlabeled_file) if unlabeled_file else files["train"]
    tables = {split: Table(path, **columns) for split, path in files.items()}
    class_names = find_class_names(tables["train"])
    classes = {name: label for label, name in enumerate(class_names)}
    readers = {
        split: functools.partial(read_examples, table, split, classes=classes) for split, table in tables.items()
    }
    unlabelled = Table(unlabelled_path, **columns).without_label()
    readers["unlabelled"] = functools.partial(read_examples, unlabelled, "unlabelled" if unlabeled_file else "train")
    return Source(Facts(USER_FILES, class_names, has_title=bool(title_column)), readers, {})


def _user_file(name, path):
    if not path or not Path(path).is_file():
        raise ValueError(f"{name}={str(path)!r} does not exist: expected the path of a file")
    return Path(path)


def find_class_names(table):
    """The different labels of a file: in the order of their values if all are numbers, else of their letters."""
    names = sorted({label for _, _, _, label in read_records(table)})
    if len(names) < 2:
        raise ValueError(f"{table.path} has {len(names)} classes in label_column={table.label!r}: expected 2 or more")
    if all(is_number(name) for name in names):
        names.sort(key=float)
    return tuple(names)


def is_number(text):
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def read_examples(table, name, classes=None, keep_empty=False):
    """Yields an Example for each record of a table, and None for each unlabelled one without text.

    Args:
      name: begins the keys; they end with the line on which a record starts.
      classes: dict from label as written to class; needed if the table has a label column.
      keep_empty: keep records without text. Otherwise one with a label is an error.
    """
    for line, text, title, label in read_records(table):
        if table.label and label not in classes:
            known = ", ".join(list(classes)[:20]) + (", ..." if len(classes) > 20 else "")
            raise ValueError(f"{table.path}, line {line}: label={label!r}: expected one of the classes {known}")
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
    ending = table.path.name.removesuffix(".gz").rpartition(".")[2]
    if ending not in ENDINGS:
        raise ValueError(f"{table.path}: unknown kind of file: expected the ending {', '.join(ENDINGS)}, also with .gz")
    for line, values in ENDINGS[ending](table, columns):
        record = dict(zip(columns, values))
        label = record.get("label", "").strip()
        if table.label and not label:
            raise ValueError(f"{table.path}, line {line}: no label. Texts without labels go into unlabeled_file")
        yield line, record["text"], record.get("title", ""), label


# ---- lines, CSV and JSON --------------------------------------------------------------------------------------------

# Longer than any text, and short enough to notice a missing quote before the rest of the file is in memory.
MAX_FIELD_LENGTH = 1 << 24


def decode(content, where):
    if b"\0" in content:
        raise ValueError(f"{where}: a NUL byte, so it is not UTF-8 text: save the file as UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not UTF-8 text ({error}): save the file as UTF-8") from error


def read_lines(path):
    """Yields the lines of a file, or of a .gz file, with their line ends."""
    opened = gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")
    with opened as file:
        number = 0
        try:
            for number, line in enumerate(file, 1):
                text = decode(line, f"{path}, line {number}")
                yield text.removeprefix("\ufeff") if number == 1 else text  # spreadsheets begin with this mark
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}, after line {number}: not a whole .gz file ({error}): get it again") from error


def read_csv(table, columns, delimiter):
    """Yields (line, values of the columns). Quotes inside of quoted fields are doubled, as in the official files."""
    positions = None
    for line, row in _read_csv_rows(table.path, delimiter):
        if positions is None:
            positions, width = find_columns(table.path, columns, row), table.width or len(row)
            if not has_positions(columns):
                continue
        if len(row) != width:
            raise ValueError(
                f"{table.path}, line {line}: expected {width} columns, found {len(row)}. A text with {delimiter!r} "
                "in it has to be quoted"
            )
        yield line, [row[position] for position in positions]


def _read_csv_rows(path, delimiter):
    """Yields (line on which the row starts, fields) of all rows but empty lines."""
    csv.field_size_limit(MAX_FIELD_LENGTH)
    reader = csv.reader(read_lines(path), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ValueError(
                f"{path}, line {line}: bad quotes ({error}). A text that begins with a quote has to be quoted as a "
                "whole, and the quotes in it doubled"
            ) from error
        if row:
            yield line, row


def has_positions(columns):
    return all(column.isdecimal() for column in columns.values())


def find_columns(path, columns, first_row):
    """Positions of the columns, which are names in the first row or numbers already."""
    given = ", ".join(f"{name}_column={column!r}" for name, column in columns.items())
    if any(column.isdecimal() for column in columns.values()) and not has_positions(columns):
        raise ValueError(f"{given}: expected names for all of them, or positions (a file without a header) for all")
    if has_positions(columns):
        known = [str(position) for position in range(len(first_row))]
        found = {name: str(int(column)) for name, column in columns.items()}
    else:
        known, found = first_row, columns
    refuse_missing(path, found, known)
    return [known.index(column) for column in found.values()]


def refuse_missing(path, columns, known):
    for name, column in columns.items():
        if column not in known:
            raise ValueError(f"{path} has no {name}_column={column!r}: its columns are {', '.join(map(repr, known))}")


def read_json_lines(table, columns):
    """Yields (line, values of the columns). The first object has to have all columns; in others null is like ""."""
    first = True
    for line, text in enumerate(read_lines(table.path), 1):
        if not text.strip():
            continue
        where = f"{table.path}, line {line}"
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: not JSON ({error}). Expected one object on each line") from error
        if not isinstance(record, dict):
            raise ValueError(f"{where}: expected a JSON object such as {{...}}, found {type(record).__name__}")
        if first:
            refuse_missing(table.path, columns, list(record))
            first = False
        yield line, [_json_text(record.get(column), column, where) for column in columns.values()]


def _json_text(value, column, where):
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"{where}: {column!r} is {json.dumps(value)[:50]}: expected a string or a number")
    # JSON can spell half of a surrogate pair, which no UTF-8 file can hold.
    return str(value).encode("utf-8", "replace").decode("utf-8")


ENDINGS = {
    "csv": functools.partial(read_csv, delimiter=","),
    "tsv": functools.partial(read_csv, delimiter="\t"),
    "jsonl": read_json_lines,
    "json": read_json_lines,
}


# ---- labelled subsets -----------------------------------------------------------------------------------------------

PUBLISHED, LABELLED, DEV = 1, 2, 3  # begin the seeds of what is drawn, so that no two draws share a stream of numbers


def choose_labelled(source, sup_size, label_seed=-1, ids=None):
    """Chooses which training examples keep their label: sup_size / num_classes of each class, or all there are.

    Candidates are taken in an order that does not depend on sup_size, so a smaller set is part of a larger one:
    with ids, in their order; with a label_seed from 0 on, drawn; with -1, the first of the files, as in the original
    release. IMDb's published order is known for 20 examples only: these come first, and others are drawn.

    Args:
      ids: as read_ids returns them. They come before label_seed.

    Returns:
      int64 [sup_size], ascending positions among the training examples.
    """
    candidates = _label_candidates(source, label_seed, ids)
    return _first_of_each_class(source, candidates, "sup_size", sup_size)


def choose_dev(source, labelled, dev_size, label_seed=-1):
    """Draws dev_size further training examples that are not labelled ones, equally many of each class.

    The order of the candidates depends on label_seed alone. Returns int64 [dev_size], ascending.
    """
    if not dev_size:
        return np.zeros(0, np.int64)
    order = np.random.default_rng([DEV, label_seed + 1]).permutation(len(source.labels("train")))
    return _first_of_each_class(source, order[~np.isin(order, labelled)], "dev_size", dev_size)


def read_ids(path):
    """Reads the ids of labelled examples, one a line. Lines that name IMDb's unsup reviews are passed over."""
    lines = [line.strip() for line in read_lines(_user_file("sup_ids_file", path))]
    return [line for line in lines if line and "unsup" not in line]


def short_id(key):
    """9716_10 for train/pos/9716_10.txt, 9716_10 or, as in the id list of the original release, pos_9716_10.txt."""
    return re.sub(r"^(pos|neg)_|\.txt$", "", key.rpartition("/")[2])


def _label_candidates(source, label_seed, ids):
    num_examples = len(source.labels("train"))
    if ids is not None:
        return _find_ids(source, ids)
    if label_seed >= 0:
        return np.random.default_rng([LABELLED, label_seed]).permutation(num_examples)
    if not source.facts.labelled_ids:
        return np.arange(num_examples)
    published = _find_ids(source, source.facts.labelled_ids, allow_missing=True)  # in a part of IMDb some are missing
    others = np.random.default_rng([PUBLISHED, 0]).permutation(num_examples)
    return np.concatenate([published, others[~np.isin(others, published)]])


def _find_ids(source, ids, allow_missing=False):
    wanted = {short_id(name): name for name in ids}
    positions = {}
    for position, example in enumerate(source.read("train")):
        if short_id(example.key) in wanted:
            positions[short_id(example.key)] = position
    missing = [name for key, name in wanted.items() if key not in positions]
    if missing and not allow_missing:
        raise ValueError(
            f"{len(missing)} of {len(wanted)} ids in sup_ids_file are no training examples, such as {missing[0]!r}: "
            f"expected ids such as {example.key!r} or {short_id(example.key)!r}"
        )
    return np.array([positions[key] for key in wanted if key in positions], np.int64)


def _first_of_each_class(source, candidates, name, size):
    """Returns the first size / num_classes candidates of each class, or all candidates, ascending."""
    if not 1 <= size <= len(candidates):
        raise ValueError(f"{name}={size} is out of range: there are {len(candidates)} examples to choose from")
    if size == len(candidates):
        return np.sort(candidates).astype(np.int64)
    num_classes = source.facts.num_classes
    per_class, rest = divmod(size, num_classes)
    if rest:
        choices = f"{size - rest} or {size - rest + num_classes}" if per_class else f"{num_classes}"
        raise ValueError(f"{name}={size} is not divisible by num_classes={num_classes}: use {choices}")
    labels = source.labels("train")[candidates]
    chosen = [candidates[labels == label][:per_class] for label in range(num_classes)]
    for class_name, found in zip(source.facts.class_names, chosen):
        if len(found) < per_class:
            raise ValueError(
                f"{name}={size} needs {per_class} examples of each class, but {class_name!r} has {len(found)} to "
                f"choose from: use less, or {name}={len(candidates)} for all, whatever their classes"
            )
    return np.sort(np.concatenate(chosen)).astype(np.int64)
