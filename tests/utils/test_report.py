"""Tables and pictures from finished runs."""

import json

import pytest

from utils import report


@pytest.fixture
def runs(tmp_path):
    for name, error_rate in [("a", 0.30), ("b", 0.20), ("c", 0.10)]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps({"error_rate": error_rate}))
        lines = [{"step": step, "loss": error_rate * step} for step in (1, 2)] + [{"step": 3}]
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"supervised": [str(tmp_path / "a"), str(tmp_path / "b")], "UDA": [str(tmp_path / "c")]}


def test_table_has_mean_and_sample_deviation(runs):
    table = report.format_table(report.collect(runs)).split("\n")
    assert [cell.strip() for cell in table[2].split("|")[1:-1]] == ["supervised", "25.0% ± 7.1", "2"]
    assert [cell.strip() for cell in table[3].split("|")[1:-1]] == ["UDA", "10.0%", "1"]


def test_curves_are_means_over_the_runs(runs):
    figure, axes = report.matplotlib.pyplot.subplots()
    report.draw_curves(axes, runs, "loss", "training loss")
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    report.matplotlib.pyplot.close(figure)
    assert lines["supervised"] == [[1, 0.25], [2, 0.5]] and lines["UDA"] == [[1, 0.1], [2, 0.2]]


def test_unfinished_run_is_named(tmp_path):
    with pytest.raises(ValueError, match="result.json does not exist: finish that run"):
        report.collect({"UDA": [str(tmp_path)]})
