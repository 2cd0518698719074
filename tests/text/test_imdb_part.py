"""The part of IMDb of the small experiments, from a folder and an archive laid out like the real one."""

import gzip
import json
from pathlib import Path

import pytest

from tests.programs import run_main
from tests.text.small_data import write_imdb
from text import imdb_part
from text.datasets import imdb
from text.datasets.source import clean

LISTED = Path(__file__).parents[2] / "results/imdb_part.txt"


def read_records(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write_names(path, names):
    path.write_text("".join(f"{name}\n" for name in names))
    return f"--names={path}"


@pytest.mark.parametrize("archive", [False, True])
def test_the_part_has_the_listed_reviews_in_the_order_of_the_list(tmp_path, archive, monkeypatch):
    monkeypatch.setattr(imdb, "ARCHIVE_MD5", "")  # of an archive this small
    monkeypatch.setitem(imdb_part.NUM_UNLABELED, "unlabeled", 2)
    texts = write_imdb(tmp_path / "raw", archive=archive)
    by_part = {part: [name for name in texts if name.startswith(part)][::-1] for part in ("train/unsup", "test/")}
    train = ["train/pos/839_7.txt", "train/neg/9851_1.txt", "train/pos/9716_10.txt"]
    names = write_names(tmp_path / "names.txt", [*train, *by_part["train/unsup"][:4], *by_part["test/"]])
    for _ in range(2):
        run_main(imdb_part, names, f"--raw_data_dir={tmp_path}/raw", f"--output_dir={tmp_path}/part")
    unlabeled = by_part["train/unsup"]
    expected = {
        "train": [(name, int("/pos/" in name)) for name in train],
        "unlabeled": [(name, -1) for name in unlabeled[:2]],
        "unlabeled_8000": [(name, -1) for name in unlabeled[:4]],
        "test": [(name, int("/pos/" in name)) for name in by_part["test/"]],
    }
    for file, names_and_labels in expected.items():
        records = read_records(tmp_path / f"part/{file}.jsonl.gz")
        assert [(record["id"], record["label"]) for record in records] == names_and_labels
        assert all(record["text"] == clean(texts[record["id"]]) for record in records)


def test_a_review_that_is_not_there_is_named(tmp_path):
    write_imdb(tmp_path / "raw")
    names = write_names(tmp_path / "names.txt", ["test/pos/0_7.txt", "test/pos/99999_7.txt", "train/unsup/88888_0.txt"])
    with pytest.raises(SystemExit, match=r"lacks 2 of the 3 reviews, such as test/pos/99999_7.txt. Remove it and run"):
        run_main(imdb_part, names, f"--raw_data_dir={tmp_path}/raw", f"--output_dir={tmp_path}/part")
    assert not (tmp_path / "part").exists()


@pytest.mark.parametrize("name", ["", "train/pos/9716.txt", "train/other/9716_10.txt", "../train/pos/9716_10.txt"])
def test_what_is_no_name_of_a_review_is_refused_with_its_line(tmp_path, name):
    names = write_names(tmp_path / "names.txt", ["train/pos/9716_10.txt", name])
    with pytest.raises(SystemExit, match="names.txt, line 2: .*expected one like train/pos/9716_10.txt"):
        run_main(imdb_part, names, f"--raw_data_dir={tmp_path}/raw", f"--output_dir={tmp_path}/part")


def test_the_list_of_the_experiments_begins_with_the_published_twenty():
    names = imdb_part.read_names(LISTED)
    assert {file: len(set(names[file])) for file in names} == {
        "train": 2000,
        "unlabeled": 3000,
        "unlabeled_8000": 8000,
        "test": 2000,
    }
    first = {name.rpartition("/")[2].removesuffix(".txt") for name in names["train"][:20]}
    assert first == set(imdb.FACTS.labelled_ids)
    for file in ("train", "test"):
        assert sum("/pos/" in name for name in names[file]) == 1000
