"""What a text record holds, and where each set of records lies in data_dir.

    data_dir/
      dataset.json                     classes, and how the texts were tokenised (Tokenization)
      vocab.txt                        the vocabulary of the word pieces
      test/                            {"original", "label"}
      sup-size_20/train, dev/          {"original", "label"}
      unsup/tf_idf-0.7/copy-000/       {"original", "augmented"}

A text is its word pieces [CLS] a [SEP] or [CLS] a [SEP] b [SEP] without padding, as int32, with the prefix of the
Tokenization at the begin of a; beside it "original_second"
or "augmented_second" tells how many of them, at the end, belong to the second segment. "index" is the text's position
in its split.
"""

import dataclasses
import hashlib
import os

import tensorflow as tf

from text.datasets.source import Facts
from text.tokenization import Tokenizer
from utils import files, labelled_subsets, records

VIEWS = ("original", "augmented")
# Settings of unlabelled sets that tell how the texts were augmented.
COPY_SETTINGS = ("aug_op", "copy", "seed", "paraphrases_sha256")
# What training needs to know of the Facts, and of which kind it is.
FACTS_FIELDS = {"name": str, "class_names": list, "has_title": bool}
STORED_FACTS = tuple(FACTS_FIELDS)
TOKENIZATION_FIELDS = {"vocab_sha256": str, "vocab_size": range(4, 1 << 24), "lower_case": bool}
TOKENIZATION_FIELDS |= {"max_seq_length": range(3, 1 << 20), "keep_tail": bool}
OPTIONAL_FIELDS = {"prefix": str}  # of the tokenization


@dataclasses.dataclass(frozen=True)
class Tokenization:
    """How texts became word pieces. Records of another one cannot be mixed with these."""

    vocab_sha256: str
    vocab_size: int
    lower_case: bool
    max_seq_length: int
    keep_tail: bool  # of a text that is too long the end is kept, not the beginning
    prefix: str = ""  # what every text begins with

    def as_dict(self):
        """As it is stored: without an empty prefix, as before there were any."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "prefix" or value}


def tokenization_of(config, tokenizer):
    """What config, a text.config.PreprocessConfig, and its vocabulary make of texts."""
    needed = 4 + len(tokenizer.prefix_ids)
    if config.max_seq_length < needed:
        raise ValueError(
            f"max_seq_length={config.max_seq_length}: expected at least {needed}, for [CLS], the "
            f"{len(tokenizer.prefix_ids)} pieces of text_prefix={tokenizer.prefix!r}, a piece of a text and two [SEP]."
        )
    return Tokenization(
        vocab_sha256=tokenizer.sha256,
        vocab_size=tokenizer.vocab_size,
        lower_case=tokenizer.lower_case,
        max_seq_length=config.max_seq_length,
        keep_tail=config.trunc_keep_right,
        prefix=tokenizer.prefix,
    )


# ---- folders --------------------------------------------------------------------------------------------------------


def sup_dir(config):
    """Folder of the draw of labelled examples that config, a text.config.DataConfig, asks for."""
    ids = f"ids_{_checksum_of_lines(config.sup_ids_file)}" if config.sup_ids_file else ""
    return os.path.join(config.data_dir, labelled_subsets.folder_name(config, ids=ids))


def copy_dir(data_dir, aug_op, copy):
    return os.path.join(data_dir, "unsup", aug_op, f"copy-{copy:03d}")


def vocab_path(data_dir):
    return os.path.join(data_dir, "vocab.txt")


def _checksum_of_lines(path):
    if not tf.io.gfile.exists(path):
        raise ValueError(f"sup_ids_file={path} does not exist: give the file with the ids of the labelled examples.")
    with files.open_file(path, "rb") as file:
        lines = file.read().decode("utf-8", "replace").split()
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]


# ---- dataset.json ---------------------------------------------------------------------------------------------------


def write_dataset(data_dir, facts, tokenization, original_vocab_path):
    """Writes dataset.json and vocab.txt, or checks that they describe the same data."""
    path = os.path.join(data_dir, "dataset.json")
    if tf.io.gfile.exists(path):
        found_facts, found_tokenization = read_dataset(data_dir)
        if found_facts != Facts(**_stored_facts(facts)):
            raise ValueError(f"{data_dir} holds records of another data set ({path}): choose another --data_dir.")
        expected, advice = dataclasses.asdict(tokenization), "Choose another --data_dir."
        check_tokenization(data_dir, found_tokenization, expected, advice)
        return
    with records.explain_refusal(data_dir):
        tf.io.gfile.makedirs(data_dir)
        with files.open_file(original_vocab_path, "rb") as vocab, files.replacing(vocab_path(data_dir), "wb") as copy:
            copy.write(vocab.read())
        write_description(data_dir, facts, tokenization)


def write_description(folder, facts, tokenization):
    """Writes dataset.json."""
    description = {"facts": _stored_facts(facts), "tokenization": tokenization.as_dict()}
    files.write_json(os.path.join(folder, "dataset.json"), description)


def _stored_facts(facts):
    return {name: getattr(facts, name) for name in STORED_FACTS}


def check_tokenization(data_dir, found, expected, advice):
    """Raises ValueError unless the fields named in the dict `expected` have those values."""
    different = [
        f"{name}: found {files.shorten(getattr(found, name))}, expected {value!r}"
        for name, value in expected.items()
        if getattr(found, name) != value
    ]
    if different:
        raise ValueError(f"{data_dir} holds texts tokenised otherwise ({'; '.join(different)}). {advice}")


def load_tokenizer(data_dir, tokenization):
    """The tokenizer of the records in data_dir, by the vocabulary that they were made with."""
    tokenizer = Tokenizer(vocab_path(data_dir), tokenization.lower_case, tokenization.prefix)
    if tokenizer.sha256 != tokenization.vocab_sha256:
        raise ValueError(
            f"{vocab_path(data_dir)} is not the vocabulary that the records beside it were made with: restore it, or "
            "preprocess again into another folder."
        )
    return tokenizer


def read_dataset(data_dir):
    """Returns (Facts, Tokenization) of the records in data_dir; only STORED_FACTS are known of the facts."""
    path = os.path.join(data_dir, "dataset.json")
    if not tf.io.gfile.exists(path):
        raise ValueError(f"data_dir={data_dir} holds no records: there is no {path}. Run `python -m text.preprocess`.")
    values = files.read_json(path)
    if not isinstance(values, dict) or set(values) != {"facts", "tokenization"}:
        raise ValueError(f"{path} does not describe records of texts: choose another folder.")
    _check_description(path, values)
    facts = {key: tuple(value) if isinstance(value, list) else value for key, value in values["facts"].items()}
    return Facts(**facts), Tokenization(**values["tokenization"])


def _check_description(path, values):
    for part, fields in (("facts", FACTS_FIELDS), ("tokenization", TOKENIZATION_FIELDS)):
        optional = OPTIONAL_FIELDS if part == "tokenization" else {}
        stored = files.check_fields(f"{path}, {part}", values[part], fields, optional)
        unknown = sorted(stored.keys() - fields.keys() - optional.keys())
        if unknown:
            raise ValueError(f"{path}, {part}: {files.shorten(unknown[0])} is unknown: {files.RESTORE}")
    files.check_labels(path, values["facts"]["class_names"])


# ---- records --------------------------------------------------------------------------------------------------------


def encode(originals, indices, labels=None, augmented=None):
    """Serialises records, one after the other.

    Args:
      originals, augmented: lists of (ids int32 array, num_second); augmented may be None.
      indices, labels: iterables of int; labels may be None.
    """
    columns = {"index": indices}
    if labels is not None:
        columns["label"] = labels
    for view, texts in zip(VIEWS, (originals, augmented)):
        if texts is not None:
            columns[view] = (ids.astype("<i4", copy=False).tobytes() for ids, _ in texts)
            columns[f"{view}_second"] = (num_second for _, num_second in texts)
    for values in zip(*columns.values()):
        yield records.encode_example(dict(zip(columns, values)))


def parse(serialized, keys):
    """Parses a batch of records.

    Args:
      keys: which of "original", "augmented", "label" and "index" are wanted.

    Returns:
      dict: numbers as int64 [batch]; a text as {"pieces": string [batch], "num_second": int64 [batch]}, for pad().
    """
    views = [key for key in keys if key in VIEWS]
    numbers = [key for key in keys if key not in VIEWS]
    features = {view: tf.io.FixedLenFeature([], tf.string) for view in views}
    features |= {f"{view}_second": tf.io.FixedLenFeature([], tf.int64) for view in views}
    features |= {key: tf.io.FixedLenFeature([], tf.int64) for key in numbers}
    parsed = tf.io.parse_example(serialized, features)
    texts = {view: {"pieces": parsed[view], "num_second": parsed[f"{view}_second"]} for view in views}
    return texts | {key: parsed[key] for key in numbers}


def check_records(record_set, facts, tokenization, keys, num_checked=None):
    """Refuses records that the input pipeline could not use: other features, pieces or labels that do not exist.

    Args:
      num_checked: look at so many records only, the first ones; None at all.
    """

    def is_wrong(serialized):
        parsed, wrong = parse(serialized, keys), []
        for view in set(keys).intersection(VIEWS):
            num_bytes, num_second = tf.strings.length(parsed[view]["pieces"]), parsed[view]["num_second"]
            wrong.append((num_bytes % 4 > 0) | (num_bytes < 8) | (num_bytes > 4 * tokenization.max_seq_length))
            wrong.append((num_second < 0) | (4 * num_second > tf.cast(num_bytes, tf.int64)))
            ids = tf.io.decode_raw(parsed[view]["pieces"], tf.int32, fixed_length=4 * tokenization.max_seq_length)
            wrong.append(tf.reduce_any((ids < 0) | (ids >= tokenization.vocab_size), axis=1))
        if "label" in keys:
            wrong.append((parsed["label"] < 0) | (parsed["label"] >= facts.num_classes))
        return tf.reduce_any(wrong)

    for path in record_set.paths[:num_checked]:
        try:
            batches = tf.data.TFRecordDataset(path).take(num_checked or -1).batch(1024)
            wrong = any(is_wrong(batch) for batch in batches)  # eagerly: to trace a graph takes longer
        except tf.errors.OpError:  # DataLossError: damaged; InvalidArgumentError: other features
            wrong = True
        if wrong:
            raise ValueError(
                f"{path} has records that are damaged or do not fit dataset.json, with {facts.num_classes} classes and "
                f"vocab_size={tokenization.vocab_size}: delete {record_set.directory} and preprocess again."
            )


def num_pieces(text):
    """Length of each text of a batch: int32 [batch]."""
    return tf.strings.length(text["pieces"]) // 4


def pad(text, length):
    """Fills up a batch of texts with 0.

    Args:
      text: as parse() gives it.
      length: int, or a scalar tensor; no text may be longer.

    Returns:
      features {"ids", "type_ids"}: int32 [batch, length].
    """
    ids = tf.io.decode_raw(text["pieces"], tf.int32, fixed_length=4 * length)
    ids = tf.ensure_shape(ids, [text["pieces"].shape[0], length if isinstance(length, int) else None])
    ends = num_pieces(text)[:, tf.newaxis]
    starts = ends - tf.cast(text["num_second"], tf.int32)[:, tf.newaxis]
    positions = tf.range(length)
    return {"ids": ids, "type_ids": tf.cast((positions >= starts) & (positions < ends), tf.int32)}
