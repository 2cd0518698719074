"""utils/label_curve.py: the learning curve of finished runs."""

import csv
import json

import pytest

from tests.programs import run_main
from utils import label_curve


def write_run(folder, name, **result):
    (folder / name).mkdir()
    (folder / name / "result.json").write_text(json.dumps(result))
    return f"{folder}/{name}"


def test_the_curve_has_mean_and_deviation_over_draws_for_each_name_and_number_of_labels(tmp_path, capsys):
    rates = {("UDA", 20): [0.1, 0.3], ("UDA", 100): [0.05], ("supervised", 20): [0.5]}
    flags = [
        f"--run={name}={write_run(tmp_path, f'{name}_{size}_{draw}', error_rate=rate, sup_size=size)}"
        for (name, size), drawn in rates.items()
        for draw, rate in enumerate(drawn)
    ]
    run_main(label_curve, *flags, f"--output={tmp_path}/curve.png")
    with open(tmp_path / "curve.csv", newline="") as file:
        rows = [(row["name"], row["labels"], float(row["error_rate"]), row["runs"]) for row in csv.DictReader(file)]
    assert rows == [("UDA", "20", 0.2, "2"), ("UDA", "100", 0.05, "1"), ("supervised", "20", 0.5, "1")]
    assert "UDA, 20 labels: 20.0% ± 14.1 (2 runs)" in capsys.readouterr().out
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_a_run_without_its_number_of_labels_is_named(tmp_path):
    model_dir = write_run(tmp_path, "old", error_rate=0.5)
    with pytest.raises(SystemExit, match="old/result.json has no sup_size: evaluate that run again"):
        run_main(label_curve, f"--run=UDA={model_dir}", f"--output={tmp_path}/curve.png")
