"""The texts of the quickstart, from an archive laid out like the real one."""

import csv
import io
import tarfile

import pytest

from text import quickstart_data


def add(archive, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def write_archive(path, num_texts):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as archive:
        for label, name in quickstart_data.COLLECTIONS.items():
            scores = [(-2, -0.4, 0.5, 3)[number % 4] for number in range(num_texts)]
            lines = [f"{number}\t{score}\t{label} text, {number}\n" for number, score in enumerate(scores)]
            add(archive, f"hutto_ICWSM_2014/{name}_GroundTruth.txt", "".join(lines).encode() + b"x\t1\tcaf\xe9\n")
    with tarfile.open(path, "w:gz") as archive:
        add(archive, quickstart_data.INNER_ARCHIVE, inner.getvalue())


def read_rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


SMALL = quickstart_data.TASKS["collections"]._replace(num_per_class=30, num_test_per_class=10)


def test_splits_have_equally_many_texts_of_each_collection_and_share_none(tmp_path):
    write_archive(tmp_path / "archive.tar.gz", 40)
    collections = SMALL.choose(quickstart_data.read_collections(tmp_path / "archive.tar.gz"))
    assert [len(texts) for texts in collections.values()] == [41] * 4
    quickstart_data.write_splits(collections, SMALL, tmp_path)
    train, test = read_rows(tmp_path / "train.csv"), read_rows(tmp_path / "test.csv")
    for rows, per_class in ((train, 20), (test, 10)):
        assert sorted(row["label"] for row in rows) == sorted(list(quickstart_data.COLLECTIONS) * per_class)
        assert all(row["text"].startswith((row["label"], "caf")) for row in rows)
        assert [row["label"] for row in rows] != sorted(row["label"] for row in rows)  # in random order
    assert not {row["text"] for row in train if "caf" not in row["text"]} & {row["text"] for row in test}
    before = (tmp_path / "train.csv").read_bytes()
    quickstart_data.write_splits(collections, SMALL, tmp_path)
    assert (tmp_path / "train.csv").read_bytes() == before


def test_film_sentences_are_praise_or_blame_by_their_score_and_those_between_are_left_out(tmp_path):
    write_archive(tmp_path / "archive.tar.gz", 40)
    classes = quickstart_data.TASKS["film"].choose(quickstart_data.read_collections(tmp_path / "archive.tar.gz"))
    numbers = {label: [int(text.split(", ")[1]) for text in texts if ", " in text] for label, texts in classes.items()}
    assert numbers == {
        "negative": list(range(0, 40, 4)),
        "positive": [number for number in range(40) if number % 4 > 1],
    }


def test_another_archive_is_refused(tmp_path):
    with tarfile.open(tmp_path / "other.tar.gz", "w:gz") as archive:
        add(archive, "readme.txt", b"nothing")
    with pytest.raises(ValueError, match="other.tar.gz is not the source archive of vaderSentiment 3.3.2"):
        quickstart_data.read_collections(tmp_path / "other.tar.gz")
