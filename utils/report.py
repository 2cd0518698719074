"""Tables and curves from finished runs."""

import collections
import csv
import os

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from absl import flags

from utils import files, run_dir

# The flags belong to the programs that call define_flags, so that their --help shows them.
flags.disclaim_key_flags()

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
    return files.read_json(path)


def format_table(rows, title="error rate"):
    """A Markdown table, one line per name."""
    cells = [("", title, "runs")]
    for row in rows:
        deviation = "" if row.deviation is None else f" ± {100 * row.deviation:.1f}"
        cells.append((row.name, f"{row.mean:.1%}{deviation}", str(row.num_runs)))
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def write_tables(path, rows):
    """Writes the table as Markdown to `path`.md and, in full precision, as CSV to `path`.csv."""
    with files.replacing(f"{path}.md") as file:
        file.write(format_table(rows) + "\n")
    with files.replacing(f"{path}.csv") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "error_rate", "deviation", "runs"])
        writer.writerows(rows)  # None is written as ""


def draw_curves(axes, runs, metric, label):
    """Draws a metric of metrics.jsonl over the steps: one line per name, the mean over its runs."""
    for name, model_dirs in runs.items():
        runs_of_name = map(run_dir.read_metrics, model_dirs)
        curves = [{line["step"]: line[metric] for line in lines if metric in line} for lines in runs_of_name]
        steps = sorted(set.intersection(*(set(curve) for curve in curves)))
        axes.plot(steps, [np.mean([curve[step] for curve in curves]) for step in steps], label=name)
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend()


# ---- the programs image.report and text.report ----------------------------------------------------------------------


def define_flags(aug_ops):
    """Args:
    aug_ops: the default of the flag that names an augmentation.
    """
    flags.DEFINE_multi_string("run", None, "NAME=MODEL_DIR of a finished run; repeat for more.", required=True)
    flags.DEFINE_string("data_dir", "", "Records with augmented copies, to show some; '' draws the curves alone.")
    flags.DEFINE_string("aug_ops", aug_ops, "Augmentation to show.")
    flags.DEFINE_string("output", "report.png", "Picture to write; the table goes beside it, as .md and .csv.")


def write_report(draw_examples):
    """Prints and writes the table, and draws the picture, as the flags say.

    Args:
      draw_examples: a function (axes, data_dir, aug_ops) that draws some augmented examples.
    """
    output, data_dir = flags.FLAGS.output, flags.FLAGS.data_dir
    runs = parse_runs(flags.FLAGS.run)
    rows = collect(runs)
    print(format_table(rows))
    write_tables(os.path.splitext(output)[0], rows)
    num_panels = 3 if data_dir else 2
    figure, axes = plt.subplots(1, num_panels, figsize=(5 * num_panels, 4.5))
    draw_curves(axes[0], runs, "loss", "training loss")
    draw_curves(axes[1], runs, "test_accuracy", "test accuracy")
    if data_dir:
        draw_examples(axes[2], data_dir, flags.FLAGS.aug_ops)
    figure.tight_layout()
    figure.savefig(output, dpi=100)
    plt.close(figure)
    print(f"{'curves and augmented examples' if data_dir else 'curves'}: {output}")
