"""utils/predictions.py: the table that image.main and text.main write."""

import csv

import numpy as np
import pytest

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


def test_a_table_that_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "missing" / "predictions.csv"
    with pytest.raises(ValueError, match=rf"{path} cannot be written \(.*\): .*choose another --predict_output\."):
        write_predictions(str(path), ["a"], np.float32([[1, 0]]), ("cat", "dog"))
