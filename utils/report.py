"""Tables and curves from finished runs."""

import collections
import csv
import os

import matplotlib
import matplotlib.pyplot
import numpy as np

from utils import run_dir

matplotlib.use("Agg")  # pictures are files: no screen is needed

Row = collections.namedtuple("Row", "name mean deviation num_runs")


def parse_runs(entries):
    """A dict from name to model_dirs out of a list of "NAME=MODEL_DIR"; a name may come several times."""
    runs = collections.defaultdict(list)
    for entry in entries:
        name, separator, model_dir = entry.partition("=")
        if not separator:
            raise ValueError(f"run={entry}: expected NAME=MODEL_DIR.")
        runs[name].append(model_dir)
    return runs


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


def write_tables(path, rows):
    """Writes the table as Markdown to `path`.md and, in full precision, as CSV to `path`.csv."""
    with open(f"{path}.md", "w") as file:
        file.write(format_table(rows) + "\n")
    with open(f"{path}.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "error_rate", "deviation", "runs"])
        writer.writerows(
            [row.name, row.mean, "" if row.deviation is None else row.deviation, row.num_runs] for row in rows
        )


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
