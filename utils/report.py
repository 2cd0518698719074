"""Tables and curves from finished runs."""

import collections
import os

import matplotlib
import matplotlib.pyplot
import numpy as np

from utils import run_dir

matplotlib.use("Agg")  # pictures are files: no screen is needed

Row = collections.namedtuple("Row", "name mean deviation num_runs")


def collect(runs, metric="error_rate"):
    """Mean and deviation of a metric of result.json over the runs of each name.

    Args:
      runs: dict from name to a list of model_dirs.
    """
    rows = []
    for name, model_dirs in runs.items():
        values = [_read_result(model_dir)[metric] for model_dir in model_dirs]
        # The sample deviation, n − 1 below the fraction bar; a single run has none.
        rows.append(Row(name, np.mean(values), np.std(values, ddof=1) if len(values) > 1 else None, len(values)))
    return rows


def _read_result(model_dir):
    path = os.path.join(model_dir, "result.json")
    if not os.path.exists(path):
        raise ValueError(f"{path} does not exist: finish that run with --do_train --do_eval.")
    return run_dir.read_json(path)


def format_percent(row):
    return f"{row.mean:.1%}" + ("" if row.deviation is None else f" ± {100 * row.deviation:.1f}")


def format_table(rows, title="error rate"):
    """A Markdown table, one line per name."""
    cells = [("", title, "runs"), *((row.name, format_percent(row), str(row.num_runs)) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def draw_curves(axes, runs, metric, label):
    """Draws a metric of metrics.jsonl over the steps: one line per name, the mean over its runs."""
    for name, model_dirs in runs.items():
        curves = [_read_curve(model_dir, metric) for model_dir in model_dirs]
        steps = sorted(set.intersection(*(set(curve) for curve in curves)))
        axes.plot(steps, [np.mean([curve[step] for curve in curves]) for step in steps], label=name)
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend()


def _read_curve(model_dir, metric):
    return {line["step"]: line[metric] for line in run_dir.read_metrics(model_dir) if metric in line}
