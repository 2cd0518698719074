"""text/datasets on small files written in the official formats, and on users' files of all kinds."""

import csv
import dataclasses
import functools
import gzip
import hashlib
import io
import os
import pickle
import re
import tarfile
import tracemalloc
import types

import numpy as np
import pytest

from tests.text import small_data
from text import datasets
from text.config import SourceConfig
from text.datasets import imdb as imdb_files
from text.datasets import labelled, lines, lists, tables
from text.datasets.labelled import draw_labelled, short_id
from text.datasets.source import Example, Facts, Source, clean, describe_files, find_raw, find_texts, read_inputs, take
from utils import files, preprocessing

ZHANG = ("yelp-2", "yelp-5", "amazon-2", "amazon-5", "dbpedia")


def open_source(task_name, raw_data_dir="", **options):
    settings = {field.name: field.default for field in dataclasses.fields(SourceConfig)}
    paths = {"task_name": task_name, "raw_data_dir": str(raw_data_dir)}
    return datasets.open_source(types.SimpleNamespace(**settings | paths | options))


def open_part(task_name, raw_data_dir, **options):
    return open_source(task_name, raw_data_dir, allow_partial=True, **options)


def refuses(*parts):
    """The error has to hold all these parts, in this order."""
    return pytest.raises(ValueError, match="(?s)" + ".*".join(re.escape(str(part)) for part in parts))


def texts_of(source, split):
    return [example.text for example in source.read(split)]


def count_read(source, split):
    return sum(1 for _ in source.read(split))


def user_source(folder, content, name="train.csv", **options):
    """Opens a user's training file of this content, and reads it."""
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    source = open_source("csv", train_file=folder / name, **options)
    return source, list(source.read("train"))


# ---- facts and cleaning ---------------------------------------------------------------------------------------------


def test_facts_of_the_published_data_sets():
    all_facts = {"imdb": imdb_files.FACTS} | tables.OFFICIAL
    sizes = {name: (facts.num_classes, facts.train_size, facts.test_size) for name, facts in all_facts.items()}
    assert sizes == {
        "imdb": (2, 25_000, 25_000),
        "yelp-2": (2, 560_000, 38_000),
        "yelp-5": (5, 650_000, 50_000),
        "amazon-2": (2, 3_600_000, 400_000),
        "amazon-5": (5, 3_000_000, 650_000),
        "dbpedia": (14, 560_000, 70_000),
    }
    assert all(facts.name == name for name, facts in all_facts.items())
    assert (*all_facts, "csv") == datasets.TASK_NAMES
    assert [name for name, facts in all_facts.items() if facts.has_title] == ["amazon-2", "amazon-5", "dbpedia"]
    assert imdb_files.FACTS.class_names == ("pos", "neg")
    assert len(set(imdb_files.FACTS.labelled_ids)) == 20


@pytest.mark.parametrize(
    "raw, cleaned",
    [
        ("one<br /><br />two", "one  two"),
        ("say &quot;yes&quot;<p>now", 'say "yes" now'),
        ('a <a href="http://x.y/z">link</a> here', "a link here"),
        ("an <a href=broken link", "an broken link"),
        ("a </a> alone", "a </a> alone"),
        (r"line\nline \"quoted\" end" + "\\", 'line line  "quoted " end'),
        (" kept\ninside ", "kept\ninside"),
    ],
)
def test_markup_is_cleaned(raw, cleaned):
    assert clean(raw) == cleaned


# ---- IMDb -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("archive", [False, True])
def test_imdb_is_read_in_the_same_order_from_folder_and_archive(tmp_path, archive):
    texts = small_data.write_imdb(tmp_path, archive=archive)
    source = open_part("imdb", tmp_path)
    keys = sorted(texts, key=lambda key: (key.rsplit("/", 1)[0], int(key.rsplit("/", 1)[1].split("_")[0])))
    classes = {"pos": 0, "neg": 1}
    for split in ("train", "test"):
        expected = [key for key in keys if key.startswith(split) and "unsup" not in key]
        examples = list(source.read(split))
        assert [example.key for example in examples] == expected
        assert [example.label for example in examples] == [classes[key.split("/")[1]] for key in expected]
        assert [example.text for example in examples] == [clean(texts[key]) for key in expected]
        assert {example.title for example in examples} == {None}
        np.testing.assert_array_equal(source.labels(split), [example.label for example in examples])


def test_imdb_may_lie_in_raw_data_dir_itself(tmp_path):
    small_data.write_imdb(tmp_path)
    assert texts_of(open_part("imdb", tmp_path / "aclImdb"), "test") == texts_of(open_part("imdb", tmp_path), "test")


def test_unlabelled_imdb_is_all_training_reviews_but_short_unsup_ones(tmp_path):
    texts = small_data.write_imdb(tmp_path, per_class=12, num_unsup=6)
    source = open_part("imdb", tmp_path)
    unlabeled = list(source.read("unlabeled"))
    unsup = [example.key for example in unlabeled if "unsup" in example.key]
    assert unsup == [f"train/unsup/{number}_0.txt" for number in (1, 2, 4, 5)]
    assert len(unlabeled) == 24 + 4
    assert {example.label for example in unlabeled} == {-1}
    assert any(len(texts[example.key]) < 500 for example in unlabeled)  # labelled ones may be short
    everything = list(source.read_all("unlabeled"))
    assert (len(everything), everything.count(None)) == (30, 2)


def test_500_characters_are_counted_after_cleaning(tmp_path):
    lengths = {"0_0": "x" * 499, "1_0": "x" * 500, "2_0": "x" * 490 + "<br /><br />", "3_0": "x<br />" + "x" * 498}
    texts = {f"train/unsup/{name}.txt": text for name, text in lengths.items()} | {"train/pos/0_9.txt": "good"}
    small_data.write_imdb_files(tmp_path, texts)
    keys = [example.key for example in open_part("imdb", tmp_path).read("unlabeled")]
    assert keys == ["train/pos/0_9.txt", "train/unsup/1_0.txt", "train/unsup/3_0.txt"]


@pytest.mark.parametrize("split, official", [("train", 25_000), ("test", 25_000), ("unlabeled", 75_000)])
def test_imdb_of_another_size_is_refused(tmp_path, split, official):
    small_data.write_imdb(tmp_path)
    with refuses(f"The {split} files of imdb hold", f"official ones {official}", "download_imdb.sh", "allow_partial"):
        list(open_source("imdb", tmp_path).read(split))


def test_the_official_size_is_accepted(tmp_path, monkeypatch):
    small_data.write_imdb(tmp_path, per_class=12, num_unsup=6, num_test=4)
    facts = dataclasses.replace(imdb_files.FACTS, train_size=24, test_size=4, unsup_size=6)
    monkeypatch.setattr(imdb_files, "FACTS", facts)
    source = open_source("imdb", tmp_path)
    assert [len(source.labels(split)) for split in ("train", "test", "unlabeled")] == [24, 4, 28]


def test_an_archive_with_another_checksum_is_refused(tmp_path, monkeypatch):
    small_data.write_imdb(tmp_path, archive=True)
    archive = tmp_path / "aclImdb_v1.tar.gz"
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    with refuses(archive, "not the official archive", f"found md5={md5}", "download_imdb.sh"):
        list(open_source("imdb", tmp_path).read("train"))
    monkeypatch.setattr(imdb_files, "ARCHIVE_MD5", md5)
    with refuses("hold 24 examples"):
        list(open_source("imdb", tmp_path).read("train"))


def test_half_an_archive_is_refused(tmp_path):
    small_data.write_imdb(tmp_path, archive=True)
    archive = tmp_path / "aclImdb_v1.tar.gz"
    archive.write_bytes(archive.read_bytes()[:700])
    with refuses(archive, "not the official archive", "reading it fails"):
        list(open_part("imdb", tmp_path).read("train"))


def write_archive(folder, *members):
    """Writes aclImdb_v1.tar.gz of these (TarInfo, content), each a member of train/pos."""
    with tarfile.open(folder / "aclImdb_v1.tar.gz", "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def review(name="aclImdb/train/pos/0_9.txt", **attributes):
    member = tarfile.TarInfo(name)
    for attribute, value in attributes.items():
        setattr(member, attribute, value)
    return member


ODD_MEMBERS = {
    "device": {"type": tarfile.CHRTYPE},
    "pipe": {"type": tarfile.FIFOTYPE},
    "folder": {"type": tarfile.DIRTYPE},
    "dangling link": {"type": tarfile.SYMTYPE, "linkname": "nowhere"},
    "link to itself": {"type": tarfile.LNKTYPE, "linkname": "aclImdb/train/pos/0_9.txt"},
}


@pytest.mark.parametrize("kind", ODD_MEMBERS)
def test_a_member_with_a_reviews_name_must_be_a_plain_file(tmp_path, kind):
    write_archive(tmp_path, (review(**ODD_MEMBERS[kind]), b""))
    with refuses("aclImdb_v1.tar.gz is not the official archive", "0_9.txt is no plain file"):
        list(open_part("imdb", tmp_path).read("train"))


@pytest.mark.parametrize(
    "limit, message", [("MAX_REVIEW_BYTES", "0_9.txt has 600 bytes"), ("MAX_ARCHIVE_BYTES", "unpacks to more than")]
)
def test_an_archive_that_unpacks_to_more_than_reviews_is_refused(tmp_path, monkeypatch, limit, message):
    monkeypatch.setattr(imdb_files, limit, 512)
    write_archive(tmp_path, (review(), b"x" * 600))
    with refuses(message):
        list(open_part("imdb", tmp_path).read("train"))


def test_the_reviews_of_a_split_have_a_limit_together(tmp_path, monkeypatch):
    monkeypatch.setattr(imdb_files, "MAX_SPLIT_BYTES", 1000)
    write_archive(tmp_path, *((review(f"aclImdb/train/pos/{number}_9.txt"), b"x" * 400) for number in range(3)))
    with refuses("2_9.txt has 400 bytes, the reviews so far 1,200"):
        list(open_part("imdb", tmp_path).read("train"))


@pytest.mark.parametrize("claim", [2**40, -512])
def test_a_header_that_claims_an_impossible_size_is_refused(tmp_path, claim):
    header = bytearray(review("other.txt").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = bytes([0x80 if claim > 0 else 0xFF]) + claim.to_bytes(11, "big", signed=True)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "aclImdb_v1.tar.gz").write_bytes(gzip.compress(bytes(header) + bytes(10240)))
    with refuses("is not the official archive"):
        list(open_part("imdb", tmp_path).read("train"))


def test_a_damaged_header_is_not_the_end_of_an_archive(tmp_path):
    write_archive(tmp_path, *((review(f"aclImdb/train/pos/{number}_9.txt"), b"good") for number in range(3)))
    content = gzip.decompress((tmp_path / "aclImdb_v1.tar.gz").read_bytes())
    for damaged in (content.replace(b"pos/1_9", b"pos/1_8"), content[:2048], content[:-10240] + b"x" * 512):
        (tmp_path / "aclImdb_v1.tar.gz").write_bytes(gzip.compress(damaged))
        with refuses("is not the official archive"):
            list(open_part("imdb", tmp_path).read("train"))


@pytest.mark.parametrize("kind", ["pipe", "folder", "dangling link", "large file"])
def test_a_file_with_a_reviews_name_must_be_a_review(tmp_path, monkeypatch, kind):
    small_data.write_imdb(tmp_path)
    path = tmp_path / "aclImdb/train/neg/99_1.txt"
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "dangling link": functools.partial(os.symlink, "nowhere")}
    make.get(kind, lambda path: path.write_bytes(b"x" * (imdb_files.MAX_REVIEW_BYTES + 1)))(path)
    with refuses(path, "expected a review"):
        list(open_part("imdb", tmp_path).read("train"))


def test_a_review_that_is_not_utf8_is_named(tmp_path):
    small_data.write_imdb(tmp_path)
    (tmp_path / "aclImdb/train/neg/4681_4.txt").write_bytes(b"caf\xe9")
    with refuses("train/neg/4681_4.txt", "not UTF-8"):
        list(open_part("imdb", tmp_path).read("train"))


# ---- Yelp, Amazon, DBpedia ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_name", ZHANG)
def test_official_csv_files_are_read(tmp_path, task_name):
    written = small_data.write_official(tmp_path, task_name)
    source = open_part(task_name, tmp_path)
    assert source.facts is tables.OFFICIAL[task_name]
    for split in ("train", "test"):
        examples = list(source.read(split))
        assert [(example.label, example.title, example.text) for example in examples] == written[split]
        assert [example.key for example in examples[:2]] == [f"{split}/1", f"{split}/2"]
        assert source.labels(split).dtype == np.int64
        np.testing.assert_array_equal(source.labels(split), [label for label, _, _ in written[split]])
    unlabeled = [example._replace(label=-1) for example in source.read("train")]
    assert list(source.read("unlabeled")) == unlabeled


def test_official_files_may_lie_in_the_folder_of_their_archive(tmp_path):
    small_data.write_official(tmp_path / "dbpedia_csv", "dbpedia")
    assert count_read(open_part("dbpedia", tmp_path), "train") == 28


def test_official_files_of_another_size_are_refused(tmp_path):
    small_data.write_official(tmp_path, "yelp-5")
    for split, official in (("train", 650_000), ("test", 50_000), ("unlabeled", 650_000)):
        with refuses(f"{split} files of yelp-5 hold", official, "yelp_review_full_csv.tgz", "allow_partial"):
            count_read(open_source("yelp-5", tmp_path), split)


def test_official_texts_without_words_stay(tmp_path):
    (tmp_path / "train.csv").write_text('"1","",""\n"2","title","text"\n')
    (tmp_path / "test.csv").write_text('"1",""," \\n"\n')
    source = open_part("amazon-2", tmp_path)
    assert list(source.read("train"))[0] == Example("train/1", "", "", 0)
    assert texts_of(source, "test") == [""]
    assert count_read(source, "unlabeled") == 2


@pytest.mark.parametrize(
    "line, message",
    [
        (b'"2","one","two"\n', "line 3: expected 2 columns, found 3"),
        (b'"2"\n', "line 3: expected 2 columns, found 1"),
        (b'"3","text"\n', "line 3: label='3': expected one of the classes 1, 2"),
        (b'"","text"\n', "line 3: no label"),
        (b'"1","caf\xe9"\n', "line 3: not UTF-8"),
        (b'"1","a\0b"\n', "line 3: a NUL byte"),
        (b'"1","a "quoted" b"\n', "line 3: bad quotes"),
        (b'"1","never closed\n"2","text"\n', "line 3: bad quotes"),
    ],
)
def test_a_bad_line_of_an_official_file_is_named(tmp_path, line, message):
    small_data.write_official(tmp_path, "yelp-2", num_train=2)
    with open(tmp_path / "train.csv", "ab") as file:
        file.write(line)
    with refuses(tmp_path / "train.csv", message):
        open_part("yelp-2", tmp_path).labels("train")


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_FIELD_LENGTH", 1000)
    before = csv.field_size_limit()
    small_data.write_official(tmp_path, "yelp-2", num_train=2)
    with open(tmp_path / "train.csv", "a") as file:
        file.write('"1","never closed\n' + "more\n" * 1000)
    try:
        with refuses("line 3: a field of more than 1,000 characters. A quote that opens it may not be closed"):
            open_part("yelp-2", tmp_path).labels("train")
    finally:
        csv.field_size_limit(before)


def test_texts_longer_than_the_limit_of_the_csv_module_are_read(tmp_path):
    csv.field_size_limit(131072)
    _, examples = user_source(tmp_path, "text,label\n" + "x" * 200_000 + ",a\nshort,b\n")
    assert len(examples[0].text) == 200_000


@pytest.mark.parametrize("task_name", ["yelp-2", "yelp-5", "amazon-2", "amazon-5"])
@pytest.mark.parametrize("name", ["reviews.json", "reviews.json.gz"])
def test_external_texts_take_the_place_of_the_training_texts(tmp_path, task_name, name):
    small_data.write_official(tmp_path, task_name)
    pairs = small_data.write_external(tmp_path / name, task_name)
    source = open_part(task_name, tmp_path, unlabeled_file=tmp_path / name)
    examples = list(source.read("unlabeled"))
    assert [(example.title, example.text) for example in examples] == pairs
    assert examples[1].key == "unlabeled/2" and examples[1].label == -1


def test_external_texts_may_be_any_number(tmp_path, monkeypatch):
    facts = dataclasses.replace(tables.OFFICIAL["yelp-2"], train_size=28, test_size=14)
    monkeypatch.setitem(tables.OFFICIAL, "yelp-2", facts)
    small_data.write_official(tmp_path, "yelp-2")
    small_data.write_external(tmp_path / "reviews.json", "yelp-2", num_texts=9)
    source = open_source("yelp-2", tmp_path, unlabeled_file=tmp_path / "reviews.json")
    assert [count_read(source, split) for split in source.splits] == [28, 14, 9]


def test_external_lines_without_text_are_left_out_and_counted(tmp_path):
    small_data.write_official(tmp_path, "amazon-2")
    records = [
        {"reviewText": "one", "summary": "two"},
        {"reviewText": " ", "summary": None},
        {"summary": "only a title"},
        {"overall": 5.0},
    ]
    small_data.write_records(tmp_path / "reviews.jsonl", records)
    source = open_part("amazon-2", tmp_path, unlabeled_file=tmp_path / "reviews.jsonl")
    titles_and_texts = [(example.title, example.text) for example in source.read("unlabeled")]
    assert titles_and_texts == [("two", "one"), ("only a title", "")]
    everything = list(source.read_all("unlabeled"))
    assert (len(everything), everything.count(None)) == (4, 2)


# ---- missing files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_name", ["imdb", *ZHANG])
def test_missing_files_are_named_with_where_to_get_them(tmp_path, task_name):
    facts = ({"imdb": imdb_files.FACTS} | tables.OFFICIAL)[task_name]
    with refuses(f"No {task_name} in raw_data_dir={str(tmp_path)!r}", tmp_path / facts.folder, facts.how_to_get):
        open_source(task_name, tmp_path)


def test_one_missing_file_is_named(tmp_path):
    small_data.write_official(tmp_path, "dbpedia")
    (tmp_path / "test.csv").unlink()
    with refuses("No dbpedia", tmp_path / "test.csv", "dbpedia_csv.tgz"):
        open_part("dbpedia", tmp_path)


def test_an_unknown_task_or_split_is_refused(tmp_path):
    with refuses("task_name='agnews' is unknown", "imdb", "csv"):
        open_source("agnews", tmp_path)
    small_data.write_imdb(tmp_path)
    with refuses("split='dev' does not exist", "train, test, unlabeled"):
        open_part("imdb", tmp_path).read("dev")


def test_options_of_other_data_sets_are_refused(tmp_path):
    with refuses("train_file='my.csv' is not for imdb: it can be used with csv"):
        open_source("imdb", tmp_path, train_file="my.csv")
    with refuses("unlabeled_file='my.csv' is not for dbpedia", "yelp-2", "csv"):
        open_source("dbpedia", tmp_path, unlabeled_file="my.csv")


# ---- users' files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json"])
@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("title", [False, True])
def test_users_files_of_all_kinds_are_read(tmp_path, ending, packed, title):
    train, test = tmp_path / f"train.{ending}{packed}", tmp_path / f"test.{ending}{packed}"
    written = small_data.write_user_file(train, title=title)
    small_data.write_user_file(test, num_examples=3, title=title, seed=1)
    source = open_source("csv", train_file=train, test_file=test, title_column="title" if title else "")
    assert source.facts.class_names == ("bad", "good") and source.facts.has_title == title
    assert source.splits == ("train", "test", "unlabeled")
    examples = list(source.read("train"))
    assert [example.text for example in examples] == [record["text"] for record in written]
    assert [example.title for example in examples] == [record.get("title") for record in written]
    assert source.facts.class_names[examples[3].label] == written[3]["label"]
    assert count_read(source, "test") == 3
    assert [example._replace(label=-1) for example in examples] == list(source.read("unlabeled"))


def test_the_key_is_the_line_where_a_record_starts(tmp_path):
    _, examples = user_source(tmp_path, 'text,label\n"two\nlines",a\n\nlast,b\n')
    assert [example.key for example in examples] == ["train/2", "train/5"]


def test_a_header_of_positions_is_no_example(tmp_path):
    """As pandas saves a table without names of columns."""
    (tmp_path / "a.csv").write_text("0,1\nhello,1\n0,0\n")
    found = list(tables.read_records(tables.Table(str(tmp_path / "a.csv"), "0", label="1")))
    assert [(text, label) for _, text, _, label in found] == [("hello", "1"), ("0", "0")]


def test_columns_of_a_file_without_header_are_given_by_position(tmp_path):
    source, examples = user_source(tmp_path, "5,x,good one\n3,y,bad one\n", text_column="2", label_column="0")
    assert examples == [Example("train/1", "good one", None, 1), Example("train/2", "bad one", None, 0)]
    assert source.facts.class_names == ("3", "5")


def test_spreadsheet_files_with_a_byte_order_mark_are_read(tmp_path):
    _, examples = user_source(tmp_path, "\ufefftext,label\r\none,a\r\ntwo,b\r\n")
    assert [example.text for example in examples] == ["one", "two"]


@pytest.mark.parametrize(
    "labels, class_names",
    [
        (["10", "9", "-1", "2.5"], ("-1", "2.5", "9", "10")),
        (["10", "9", "x"], ("10", "9", "x")),
        (["nan", "2", "10"], ("10", "2", "nan")),
        (["b", "a", " b "], ("a", "b")),
    ],
)
def test_class_names_are_sorted_and_numbers_by_value(tmp_path, labels, class_names):
    source, examples = user_source(tmp_path, "text,label\n" + "".join(f"some,{label}\n" for label in labels))
    assert source.facts.class_names == class_names
    assert [class_names[example.label] for example in examples] == [label.strip() for label in labels]


def test_json_values_may_be_numbers(tmp_path):
    content = '{"text": "one", "label": 2}\n\n{"text": 2, "label": 10}\n{"text": "half \\ud800", "label": "2"}\n'
    source, examples = user_source(tmp_path, content, "train.jsonl")
    assert source.facts.class_names == ("2", "10")
    assert examples[1] == Example("train/3", "2", None, 1)
    assert examples[2].text == "half ?"


def test_an_unlabelled_file_of_its_own_needs_no_labels(tmp_path):
    small_data.write_user_file(tmp_path / "train.csv")
    small_data.write_records(tmp_path / "more.jsonl", [{"text": "one"}, {"text": ""}, {"text": "<br />"}])
    source = open_source("csv", train_file=tmp_path / "train.csv", unlabeled_file=tmp_path / "more.jsonl")
    assert source.splits == ("train", "unlabeled")
    assert list(source.read("unlabeled")) == [Example("unlabeled/1", "one", None, -1)]
    everything = list(source.read_all("unlabeled"))
    assert (len(everything), everything.count(None)) == (3, 2)


@pytest.mark.parametrize("name", ["train.csv", "train.tsv", "train.jsonl"])
@pytest.mark.parametrize("option", ["text_column", "title_column", "label_column"])
def test_a_missing_column_is_named_with_those_there_are(tmp_path, name, option):
    small_data.write_user_file(tmp_path / name)
    with refuses(tmp_path / name, f"has no {option}='review'", "'text', 'label'"):
        open_source("csv", train_file=tmp_path / name, **{option: "review"})


@pytest.mark.parametrize(
    "name, content, message, options",
    [
        ("train.csv", "text,label\none,a,b\n", "line 2: expected 2 columns, found 3", {}),
        ("train.tsv", "text\tlabel\none\n", r"line 2: expected 2 columns, found 1. A text with '\t'", {}),
        ("train.csv", "text,label\none,a\n,b\n", "line 3: a labelled example without text", {}),
        ("train.csv", "text,label\none,a\ntwo, \n", "line 3: no label", {}),
        ("train.csv", "text,label\none,a\ntwo,a\n", "has 1 classes in label_column='label': expected 2 or more", {}),
        ("train.csv", "", "has 0 classes", {}),
        ("train.csv", b"\xff\xfet\0e\0x\0t\0", "line 1: a NUL byte, so it is not UTF-8", {}),
        ("train.csv", "a,b\n", "has no text_column='2': its columns are '0', '1'", {"text_column": "2"}),
        ("train.csv", "a,b\n", "expected names for all of them, or positions", {"text_column": "b"}),
        ("train.csv", "text,label\n", "text_column is empty", {"text_column": "", "label_column": "label"}),
        ("train.txt", "text,label\n", "unknown kind of file: expected the ending csv, tsv, jsonl, json", {}),
        ("train.csv.gz", gzip.compress(b"text,label\none,a\n", mtime=0)[:-9], "not a whole .gz file", {}),
        ("train.csv.gz", b"text,label\none,a\n", "not a whole .gz file", {}),
        ("train.jsonl", '{"text": "one", "label": 1}\n{"text"\n', "line 2: not JSON", {}),
        ("train.jsonl", '["one", 1]\n', "line 1: expected a JSON object such as {...}, found list", {}),
        ("train.jsonl", '{"text": ["one"], "label": 1}\n', "line 1: 'text' is [\"one\"]: expected a string", {}),
        ("train.jsonl", '{"text": "one", "label": true}\n', "line 1: 'label' is true: expected a string", {}),
        ("train.jsonl", '{"text": "one", "label": 1}\n{"text": "two"}\n', "line 2: no label", {}),
    ],
)
def test_bad_input_is_named(tmp_path, name, content, message, options):
    positions = {"label_column": "0"} if "text_column" in options else {}
    with refuses(message) as raised:
        user_source(tmp_path, content, name, **{**positions, **options})
    assert name in str(raised.value) or options


@pytest.mark.parametrize("name", ["train.csv", "train.tsv", "train.jsonl"])
def test_lines_that_end_with_a_carriage_return_alone_are_named(tmp_path, name):
    separator = "\t" if name == "train.tsv" else ","
    content = f"text{separator}label\rone{separator}a\rtwo{separator}b\r"
    if name == "train.jsonl":
        content = '{"text": "one", "label": "a"}\r{"text": "two", "label": "b"}\r'
    with refuses(tmp_path / name, r"its lines end with \r alone: save the file with the line ends of Unix"):
        user_source(tmp_path, content, name)


def test_a_carriage_return_within_a_file_is_not_called_a_quote(tmp_path):
    with refuses("train.csv, line 2: its lines end with", "alone"):
        user_source(tmp_path, "text,label\none,a\rtwo,b\n")


@pytest.mark.parametrize("name", ["train.csv", "train.csv.gz", "train.jsonl.gz"])
def test_a_line_that_does_not_end_is_refused_before_it_is_in_memory(tmp_path, monkeypatch, name):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    first = {"train.jsonl.gz": b'{"text": "one", "label": "a"}\n'}.get(name, b"text,label\n")
    content = first + b"x" * (1 << 25)
    tracemalloc.start()
    try:
        with refuses(name, "line 2: more than 1 MB without a line end"):
            user_source(tmp_path, gzip.compress(content) if name.endswith(".gz") else content, name)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def test_one_number_written_in_two_ways_is_not_two_classes(tmp_path):
    with refuses("writes one number in several ways in label_column='label', such as '1' and '1.0'"):
        user_source(tmp_path, "text,label\none,1\ntwo,1.0\nthree,2\n")


def test_a_column_that_the_header_has_twice_is_refused(tmp_path):
    with refuses("train.csv has several columns 'text': rename all but the one that is meant"):
        user_source(tmp_path, "text,label,text\none,a,x\ntwo,b,y\n")
    _, examples = user_source(tmp_path, "text,label,other,other\none,a,x,x\ntwo,b,y,y\n")
    assert [example.text for example in examples] == ["one", "two"]


@pytest.mark.parametrize("other", ["label_column", "title_column"])
def test_the_text_cannot_be_the_label_or_the_title(tmp_path, other):
    with refuses(f"{other}='text': expected different columns"):
        user_source(tmp_path, "text,label\none,a\ntwo,b\n", **{other: "text"})


def test_a_test_label_that_training_lacks_is_named(tmp_path):
    small_data.write_user_file(tmp_path / "train.csv")
    small_data.write_user_file(tmp_path / "test.csv", class_names=("bad", "so-so"))
    source = open_source("csv", train_file=tmp_path / "train.csv", test_file=tmp_path / "test.csv")
    with refuses(tmp_path / "test.csv", "line 4: label='so-so': expected one of the classes bad, good"):
        source.labels("test")


@pytest.mark.parametrize("option", ["train_file", "test_file", "unlabeled_file"])
def test_a_missing_users_file_is_named(tmp_path, option):
    small_data.write_user_file(tmp_path / "train.csv")
    with refuses(f"{option}={str(tmp_path / 'no.csv')!r} does not exist"):
        open_source("csv", **{"train_file": tmp_path / "train.csv", option: tmp_path / "no.csv"})


def test_a_split_without_a_single_text_is_refused(tmp_path):
    small_data.write_user_file(tmp_path / "train.csv")
    small_data.write_records(tmp_path / "more.csv", [{"text": ""}])
    source = open_source("csv", train_file=tmp_path / "train.csv", unlabeled_file=tmp_path / "more.csv")
    with refuses("no unlabeled examples"):
        count_read(source, "unlabeled")
    with refuses("split='test' does not exist"):
        source.read("test")


# ---- sources --------------------------------------------------------------------------------------------------------


def test_a_source_is_small_and_survives_pickling(tmp_path):
    small_data.write_user_file(tmp_path / "train.csv", num_examples=1000)
    source = open_source("csv", train_file=tmp_path / "train.csv")
    source.labels("train")
    content = pickle.dumps(source)
    assert len(content) < 2000
    assert list(pickle.loads(content).read("train")) == list(source.read("train"))
    small_data.write_imdb(tmp_path)
    source = open_part("imdb", tmp_path)
    assert list(pickle.loads(pickle.dumps(source)).read("test")) == list(source.read("test"))


def test_texts_are_read_one_by_one(tmp_path):
    _, examples = user_source(tmp_path, "text,label\none,a\ntwo,b\n")
    source = open_source("csv", train_file=tmp_path / "train.csv")
    with open(tmp_path / "train.csv", "a") as file:
        file.write("x" * 100_000 + ",a\nbad line\n")  # further on than what a file object reads ahead
    examples = source.read("train")
    assert next(examples).text == "one"
    with refuses("line 5"):
        list(examples)


def test_labels_are_read_once(tmp_path):
    source, _ = user_source(tmp_path, "text,label\none,a\ntwo,b\n")
    labels = source.labels("train")
    (tmp_path / "train.csv").unlink()
    assert source.labels("train") is labels


# ---- labelled subsets -----------------------------------------------------------------------------------------------


@pytest.fixture
def imdb(tmp_path):
    small_data.write_imdb(tmp_path, per_class=30)
    return open_part("imdb", tmp_path)


@pytest.fixture
def table(tmp_path):
    small_data.write_user_file(tmp_path / "train.csv", num_examples=60, class_names=("a", "b", "c"))
    return open_source("csv", train_file=tmp_path / "train.csv")


def ids_of(source, indices):
    keys = [example.key for example in source.read("train")]
    return {short_id(keys[index]) for index in indices}


def counts(source, indices):
    return np.bincount(source.labels("train")[indices], minlength=source.facts.num_classes).tolist()


def choose_labelled(source, sup_size, **options):
    return draw_labelled(source, sup_size, **options)[0]


def test_the_published_twenty_are_imdbs_default(imdb):
    chosen = choose_labelled(imdb, 20)
    assert ids_of(imdb, chosen) == set(imdb_files.FACTS.labelled_ids)
    assert chosen.dtype == np.int64 and np.all(np.diff(chosen) > 0)


def test_other_sizes_of_imdb_hold_or_are_part_of_the_published_twenty(imdb):
    few, many = choose_labelled(imdb, 6), choose_labelled(imdb, 40)
    published = imdb_files.FACTS.labelled_ids
    assert ids_of(imdb, few) == {*published[:3], *published[10:13]}
    assert set(published) < ids_of(imdb, many) and counts(imdb, many) == [20, 20]
    ids = [short_id(example.key) for example in imdb.read("train")]
    assert ids_of(imdb, many) != ids_of(imdb, choose_labelled(imdb, 40, ids=[*published, *ids]))  # drawn, not the first


def test_a_part_of_imdb_without_the_published_reviews_can_be_used(tmp_path):
    names = ("pos/0_7", "pos/1_8", "neg/0_1", "neg/1_2")
    small_data.write_imdb_files(tmp_path, {f"train/{name}.txt": "x" for name in names})
    source = open_part("imdb", tmp_path)
    assert counts(source, choose_labelled(source, 2)) == [1, 1]


def test_without_a_seed_the_first_of_each_class_are_chosen(table):
    np.testing.assert_array_equal(choose_labelled(table, 12), np.arange(12))


def test_seeds_draw_balanced_subsets_that_grow_with_sup_size(table):
    draws = [choose_labelled(table, 12, label_seed=seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert draws[0].tolist() != draws[2].tolist() != list(range(12))
    assert counts(table, draws[0]) == [4, 4, 4] and len(set(draws[0])) == 12
    assert set(choose_labelled(table, 6, label_seed=0)) < set(draws[0])


def test_all_examples_can_be_labelled_whatever_their_classes(tmp_path):
    source, _ = user_source(tmp_path, "text,label\none,a\ntwo,b\nthree,b\n")
    np.testing.assert_array_equal(choose_labelled(source, 3, label_seed=4), [0, 1, 2])


@pytest.mark.parametrize(
    "sup_size, message",
    [
        (0, "sup_size=0 is out of range: there are 60 examples"),
        (61, "sup_size=61 is out of range"),
        (20, "sup_size=20 is not divisible by num_classes=3: use 18 or 21"),
        (2, "sup_size=2 is not divisible by num_classes=3: use 3"),
    ],
)
def test_sizes_that_cannot_be_balanced_are_refused(table, sup_size, message):
    with refuses(message):
        choose_labelled(table, sup_size)


def test_a_class_with_too_few_examples_is_named(tmp_path):
    source, _ = user_source(tmp_path, "text,label\n" + "one,a\n" * 8 + "two,b\n")
    with refuses("sup_size=4 needs 2 examples of each class, but 'b' has 1", "sup_size=9 for all"):
        choose_labelled(source, 4)


@pytest.mark.parametrize("form", ["train/{part}/{name}.txt", "{name}", "{part}_{name}.txt"])
def test_ids_can_be_listed_in_a_file(imdb, tmp_path, form):
    names = {"pos": ["10_9", "839_7", "2_9"], "neg": ["3_4", "11575_1", "1_2"]}
    lines = [form.format(part=part, name=name) for part in names for name in names[part]]
    (tmp_path / "ids.txt").write_text("\n".join([*lines, "", "unsup_1_0.txt", lines[0]]) + "\n")
    ids = labelled.read_ids(tmp_path / "ids.txt")
    assert ids_of(imdb, choose_labelled(imdb, 6, ids=ids)) == {*names["pos"], *names["neg"]}
    # In the order of the list, and before any seed.
    assert ids_of(imdb, choose_labelled(imdb, 4, label_seed=3, ids=ids)) == {"10_9", "839_7", "3_4", "11575_1"}
    with refuses("sup_size=8 is out of range: there are 6 examples to choose from"):
        choose_labelled(imdb, 8, ids=ids)


def test_ids_of_a_table_are_line_numbers(table):
    np.testing.assert_array_equal(choose_labelled(table, 2, ids=["train/2", "4"]), [0, 1])


def test_unknown_ids_are_named(imdb, tmp_path):
    with refuses("1 of 2 ids in sup_ids_file are no training examples, such as '99999_1'", "train/pos/", "_"):
        choose_labelled(imdb, 2, ids=["839_7", "99999_1"])
    with refuses("sup_ids_file=", "does not exist"):
        labelled.read_ids(tmp_path / "no.txt")


def test_the_development_set_is_balanced_and_beyond_the_labelled_examples(imdb, table):
    for source, sup_size in ((imdb, 20), (table, 30)):
        labelled, dev = draw_labelled(source, sup_size, 6, label_seed=1)
        np.testing.assert_array_equal(labelled, choose_labelled(source, sup_size, label_seed=1))
        assert counts(source, dev) == [6 // source.facts.num_classes] * source.facts.num_classes
        assert not set(dev) & set(labelled) and len(set(dev)) == 6
        np.testing.assert_array_equal(dev, draw_labelled(source, sup_size, 6, label_seed=1)[1])
        assert dev.dtype == np.int64 and np.all(np.diff(dev) > 0)


def test_the_development_set_hardly_depends_on_sup_size(table):
    small, large = (set(draw_labelled(table, sup_size, 9)[1]) for sup_size in (3, 6))
    assert len(small & large) >= 6
    assert small != set(draw_labelled(table, 3, 9, label_seed=0)[1])


def test_a_development_set_needs_examples_that_are_left(table):
    assert draw_labelled(table, 60)[1].shape == (0,)
    with refuses("dev_size=3 is out of range: there are 0 examples"):
        draw_labelled(table, 60, 3)
    with refuses("dev_size=4 is not divisible by num_classes=3: use 3 or 6"):
        draw_labelled(table, 6, 4)


def test_labelled_and_development_examples_may_together_be_all(table):
    labelled, dev = draw_labelled(table, 54, 6, label_seed=1)
    assert counts(table, dev) == [2, 2, 2]
    assert sorted([*labelled, *dev]) == list(range(60)) and np.all(np.diff(labelled) > 0)


# ---- texts in memory ------------------------------------------------------------------------------------------------


def test_texts_in_memory_may_have_titles_and_no_test_set():
    source = lists.create_source("csv", ("no", "yes"), (["a<br />b", "c"], ["t", ""], [0, 1]))
    assert source.facts.has_title and source.splits == ("train", "unlabeled")
    assert [example[1:] for example in source.read("train")] == [("a b", "t", 0), ("c", "", 1)]
    assert [example[1:] for example in source.read("unlabeled")] == [("a b", "t", -1), ("c", "", -1)]


# ---- what tells texts from others -----------------------------------------------------------------------------------


def test_texts_are_told_apart_without_reading_them(tmp_path, monkeypatch):
    small_data.write_user_file(tmp_path / "train.csv", title=True)
    small_data.write_user_file(tmp_path / "more.csv", seed=1, title=True)
    options = [{}, {"unlabeled_file": tmp_path / "more.csv"}, {"text_column": "title"}, {"title_column": "title"}]
    sources = [open_source("csv", train_file=tmp_path / "train.csv", **option) for option in options]
    monkeypatch.setattr(lines, "read_lines", None)
    before = [source.identify() for source in sources]
    assert len(set(map(str, before))) == 4
    assert [source.identify() for source in sources] == before
    (tmp_path / "train.csv").write_text((tmp_path / "train.csv").read_text() + "more,of,it\n")
    assert [a == b for a, b in zip(before, (source.identify() for source in sources))] == [False, True, False, False]


@pytest.mark.parametrize("archive", [False, True])
def test_a_changed_review_makes_other_texts(tmp_path, archive):
    texts = small_data.write_imdb(tmp_path, archive=archive)
    source = open_part("imdb", tmp_path)
    before = source.identify()
    assert open_part("imdb", tmp_path).identify() == before
    small_data.write_imdb_files(tmp_path, {"train/unsup/9_0.txt": "x"} | texts, archive)
    assert source.identify() != before


def test_lists_are_told_apart_by_their_content():
    def identify(*unlabeled):
        return lists.create_source("csv", ("no", "yes"), (["ba", "da"], [0, 1]), list(unlabeled)).identify()

    assert identify("a", "b") == identify("a", "b") != identify("b", "a")


# ---- a new data set -------------------------------------------------------------------------------------------------


def read_numbers(path, split):
    for number, line in enumerate(files.read_bytes(path).decode().splitlines()):
        label = -1 if split == "unlabeled" else number % 2
        yield Example(f"{split}/{number}", clean(line), None, label) if line else None


def open_numbers(config):
    """A data set that is no table, as a file of its own would open it."""
    facts = Facts("numbers", ("even", "odd"))
    path = find_raw(config, facts, "numbers.txt")
    readers = {split: functools.partial(read_numbers, path, split) for split in ("train", "unlabeled")}
    return Source(facts, readers, functools.partial(describe_files, path))


def test_a_data_set_is_added_by_one_entry_in_the_table(tmp_path, monkeypatch):
    monkeypatch.setitem(datasets.SOURCES, "numbers", datasets.Entry(open_numbers))
    (tmp_path / "numbers.txt").write_text("zero\none\ntwo\nthree\n")
    numbers = open_source("numbers", tmp_path)
    assert texts_of(numbers, "unlabeled") == ["zero", "one", "two", "three"]
    np.testing.assert_array_equal(draw_labelled(numbers, 2)[0], [0, 1])
    assert find_texts(numbers, "train").count == 4
    with refuses("train_file='a.csv' is not for numbers: it can be used with csv"):
        open_source("numbers", tmp_path, train_file="a.csv")


def test_official_files_lie_in_a_folder_of_their_name_unless_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_data.write_imdb(tmp_path / "data/raw/imdb")
    assert count_read(open_part("imdb", ""), "train") == 24


# ---- the texts of a set of records ----------------------------------------------------------------------------------


def test_shards_are_read_in_their_order_and_those_between_are_passed_over(table, monkeypatch):
    monkeypatch.setattr(preprocessing, "SHARD_SIZE", 8)
    texts = find_texts(table, "train")
    assert (texts.split, texts.indices, texts.count, len(texts.sha256)) == ("train", None, 60, 64)
    everything = list(table.read("train"))
    blocks = list(read_inputs(table, texts, [0, 3, 7]))
    assert [list(positions) for positions, _ in blocks] == [list(range(8)), list(range(24, 32)), [56, 57, 58, 59]]
    assert [list(examples) for _, examples in blocks] == [everything[:8], everything[24:32], everything[56:]]


def test_chosen_texts_are_read_in_shards(table, monkeypatch):
    monkeypatch.setattr(preprocessing, "SHARD_SIZE", 2)
    texts = find_texts(table, "train", np.array([3, 5, 30, 31, 59]))
    assert texts.count == 5 and texts.sha256 != find_texts(table, "train", np.array([3, 5, 30, 31, 58])).sha256
    assert [positions for positions, _ in read_inputs(table, texts, [0, 2])] == [(3, 5), (59,)]


# ---- fixtures -------------------------------------------------------------------------------------------------------


def test_the_vocabulary_of_the_fixtures_holds_all_their_words(tmp_path):
    pieces = small_data.write_vocab(tmp_path / "vocab.txt")
    assert (tmp_path / "vocab.txt").read_text().splitlines() == list(pieces)
    assert pieces[0] == "[PAD]" and len(set(pieces)) == len(pieces)
    assert {"[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "."} < set(pieces)
    words = small_data.random_text(np.random.default_rng(0), 3).lower().rstrip(".").split()
    assert set(words) <= set(pieces) and small_data.CLASS_WORDS[3] in words


def test_the_examples_at_some_positions_are_taken():
    letters = "abcdefghij"
    assert list(take(iter(letters), np.array([0, 1, 4, 9]))) == ["a", "b", "e", "j"]
    assert list(take(iter(letters), range(8, 10))) == ["i", "j"]
