"""utils/predictions.py: the table that image.main and text.main write."""

import csv
import os
import types

import numpy as np
import pytest
from PIL import Image

import image.main
import text.main
from tests.programs import run_main
from utils.predictions import write_predictions


def test_predictions_are_a_table_of_inputs_labels_and_probabilities(tmp_path):
    path = tmp_path / "predictions.csv"
    write_predictions(str(path), ["a, b.png", "two\nlines"], np.float32([[0.25, 0.75], [0.9, 0.1]]), ("cat", "dog"))
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["input", "label", "probability", "cat", "dog"],
        ["a, b.png", "dog", "0.750000", "0.250000", "0.750000"],
        ["two\nlines", "cat", "0.900000", "0.900000", "0.100000"],
    ]


def test_names_of_files_may_be_any_bytes(tmp_path):
    path, names = tmp_path / "predictions.csv", [b"caf\xe9.png", "café.png".encode(), b"\xff\n.png"]
    write_predictions(str(path), list(map(os.fsdecode, names)), PROBABILITIES, ("x", "y", "z"))
    assert path.read_bytes().startswith(b"input,label,probability,x,y,z\ncaf\xe9.png,y,0.500000,")
    with open(path, newline="", encoding="utf-8", errors="surrogateescape") as file:
        assert [os.fsencode(row["input"]) for row in csv.DictReader(file)] == names


PROBABILITIES = np.float32([[0.2, 0.5, 0.3], [0.9, 0.05, 0.05], [0.86, 0.04, 0.1]])


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_the_next_most_probable_classes_are_added_on_request(tmp_path):
    path = tmp_path / "predictions.csv"
    write_predictions(str(path), ["a", "b", "c"], PROBABILITIES, ("x", "y", "z"), top_k=3, class_probabilities=False)
    rows = read(path)
    assert list(rows[0]) == ["input", "label", "probability", "label_2", "probability_2", "label_3", "probability_3"]
    assert [[row[name] for name in ("label", "label_2", "label_3")] for row in rows] == [[*"yzx"], [*"xyz"], [*"xzy"]]
    assert [float(row["probability_2"]) for row in rows] == pytest.approx([0.3, 0.05, 0.1])


def test_predictions_below_a_threshold_are_marked(tmp_path):
    path = tmp_path / "predictions.csv"
    write_predictions(str(path), ["a", "b", "c"], PROBABILITIES, ("x", "y", "z"), unsure_below=0.86)
    assert list(read(path)[0]) == ["input", "label", "probability", "unsure", "x", "y", "z"]
    assert [row["unsure"] for row in read(path)] == ["yes", "no", "no"]  # 0.86 itself is sure enough


@pytest.mark.parametrize("top_k", [0, 4])
def test_more_classes_than_there_are_cannot_be_named(tmp_path, top_k):
    with pytest.raises(ValueError, match=f"top_k={top_k}: expected 1 to 3, the number of classes."):
        write_predictions(str(tmp_path / "predictions.csv"), ["a"], PROBABILITIES[:1], ("x", "y", "z"), top_k=top_k)


@pytest.mark.parametrize("program", [image.main, text.main])
@pytest.mark.parametrize("flag", ["--top_k=4", "--predict_output={}/missing/predictions.csv"])
def test_what_cannot_be_written_is_refused_before_anything_is_predicted(tmp_path, monkeypatch, program, flag):
    def predict_proba(*_):
        raise AssertionError("this would take hours")

    facts = types.SimpleNamespace(class_names=["x", "y", "z"], image_size=8)
    monkeypatch.setattr(
        program.export, "load", lambda _: types.SimpleNamespace(facts=facts, predict_proba=predict_proba)
    )
    (tmp_path / "input.txt").write_text("good\n")
    Image.new("RGB", (8, 8)).save(tmp_path / "input.png")
    given = tmp_path / ("input.txt" if program is text.main else "input.png")
    arguments = ["--do_predict", f"--model_dir={tmp_path}", f"--predict_input={given}", flag.format(tmp_path)]
    with pytest.raises(SystemExit, match="top_k=4: expected 1 to 3|predictions.csv cannot be written"):
        run_main(program, *arguments)


def test_nothing_to_predict_is_an_empty_table(tmp_path):
    write_predictions(str(tmp_path / "predictions.csv"), [], np.zeros([0, 2], np.float32), ("x", "y"))
    assert (tmp_path / "predictions.csv").read_text() == "input,label,probability,x,y\n"


def test_a_table_that_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "missing" / "predictions.csv"
    with pytest.raises(ValueError, match=rf"{path} cannot be written \(.*\): .*choose another --predict_output\."):
        write_predictions(str(path), ["a"], np.float32([[1, 0]]), ("cat", "dog"))
