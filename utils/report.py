"""One page that shows a run, or compares several: figures, curves, classes, calibration, examples.

    python -m utils.report --run="supervised=runs/a" --run="UDA=runs/b" --output=report.html
    python -m utils.report --runs=runs/quickstart --output=runs/quickstart/report.html

A name may be given several times, with runs of other draws of the labels: the page then has means, deviations and
intervals. image.report and text.report do the same and add examples.
"""

import collections
import csv
import functools
import os
import sys
from typing import NamedTuple

import numpy as np
from absl import flags

from utils import cli, comparison_page, evaluation, examples, files, page, run_dir, run_page, settings

# The flags belong to the programs that call define_flags, so that their --help shows them.
flags.disclaim_key_flags()

ADVICE = "make room, or choose another --output."
EVALUATE = "evaluate that run again, with --do_eval."
# What may be in result.json, beside the error rate.
OPTIONAL = {"task_name": str, "accuracy": float, "top5_accuracy": float, "loss": float, "sup_size": int, "seed": int}
OPTIONAL |= {"step": int, "train_steps": int, "examples_per_second": float, "train_seconds": float, "versions": dict}
OPTIONAL |= {"label_seed": range(-1, 1 << 62)}
# What the page takes from config.json.
SETTINGS = {"train_steps": range(1, 1 << 62), "sup_size": int, "dev_size": int, "unsup_ratio": int, "tsa": str}
SETTINGS |= dict.fromkeys(
    ("uda_confidence_thresh", "uda_softmax_temp", "unsup_coeff", "learning_rate", "ema_decay"), float
)
Row = collections.namedtuple("Row", "name mean deviation num_runs")


class Run(NamedTuple):
    """A finished run, as its model_dir tells it. What earlier versions did not write is empty or None."""

    model_dir: str
    result: dict  # result.json
    config: dict  # config.json
    start: dict  # run.json
    lines: list  # metrics.jsonl
    evaluation: evaluation.Evaluation | None  # evaluation.npz


def read_run(model_dir):
    path = os.path.join(model_dir, "config.json")
    config = files.check_fields(path, files.read_json(path), {}, SETTINGS) if files.exists(path) else {}
    parts = run_dir.read_start(model_dir), run_dir.read_metrics(model_dir), evaluation.read(model_dir)
    return Run(model_dir, _read_result(model_dir), config, *parts)


def _read_result(model_dir):
    path = os.path.join(model_dir, "result.json")
    if not files.exists(path):
        raise ValueError(f"{path} does not exist: finish that run with --do_train --do_eval.")
    values = files.read_json(path)
    if isinstance(values, dict):
        values = {name: value for name, value in values.items() if value is not None}
    return files.check_fields(path, values, {"error_rate": float}, OPTIONAL, advice=EVALUATE)


# ---- which runs -----------------------------------------------------------------------------------------------------


def parse_runs(entries):
    """A dict from name to model_dirs out of a list of "NAME=MODEL_DIR"; a name may come several times."""
    runs = collections.defaultdict(list)
    for entry in entries:
        name, separator, model_dir = entry.partition("=")
        if not separator:
            raise ValueError(f"run={entry}: expected NAME=MODEL_DIR.")
        runs[name].append(model_dir)
    return runs


def find_runs(folder):
    """All finished runs below a folder, by the names of their own folders: runs/seed_0/UDA is a draw of UDA."""
    runs = collections.defaultdict(list)
    for model_dir, folders, names in files.walk(folder):
        folders.sort()
        if "result.json" in names:
            folders.clear()
            runs[os.path.basename(files.absolute(model_dir))].append(model_dir)
    if not runs:
        raise ValueError(f"runs={folder}: there is no finished run below it, with a result.json.")
    return runs


# ---- the table ------------------------------------------------------------------------------------------------------


def collect(runs):
    """Mean and deviation of the error rate over the runs of each name.

    Args:
      runs: dict from name to a list of Run.
    """
    rows = []
    for name, of_name in runs.items():
        values = [run.result["error_rate"] for run in of_name]
        # The sample deviation, n − 1 below the fraction bar; a single run has none.
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        rows.append(Row(name, float(np.mean(values)), deviation, len(values)))
    return rows


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
    with files.explain_refusal(path, ADVICE):
        with files.replacing(f"{path}.md") as file:
            file.write(format_table(rows) + "\n")
        with files.replacing(f"{path}.csv") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["name", "error_rate", "deviation", "runs"])
            writer.writerows(rows)  # None is written as ""


# ---- the page -------------------------------------------------------------------------------------------------------


def write_run_page(model_dir, show_pairs=None, show_rows=None):
    """Writes report.html of one run into its model_dir; whatever goes wrong is told, and does not end a program.

    Args:
      show_pairs, show_rows: see utils/examples.py; None shows no examples.
    """
    path = os.path.join(model_dir, "report.html")
    try:
        write_page(path, create_run_page(read_run(model_dir), show_pairs, show_rows))
    except Exception as error:  # the run itself is finished, and its result is written
        print(f"{path} was not written: {' '.join(str(error).splitlines()) or repr(error)}", file=sys.stderr)


def create_run_page(run, show_pairs, show_rows):
    return run_page.create(run, examples.create(run, show_pairs, show_rows) if show_pairs else [])


def write_page(path, content):
    with files.explain_refusal(path, ADVICE), files.replacing(path) as file:
        file.write(page.document(*content))
    print(f"report: {path}")


# ---- the programs ---------------------------------------------------------------------------------------------------


def define_flags(has_examples=False):
    flags.DEFINE_multi_string("run", [], "NAME=MODEL_DIR of a finished run; repeat for more.")
    flags.DEFINE_string("runs", "", "Folder: all finished runs below it, by the names of their own folders.")
    flags.DEFINE_string("baseline", "", "Name that the others are compared with; default the first.")
    flags.DEFINE_string("output", "report.html", "Page to write; the table goes beside it, as .md and .csv.")
    if has_examples:
        flags.DEFINE_string("data_dir", "", "Records to show augmented examples from; default those of the last run.")
        flags.DEFINE_string("aug_ops", "", "Augmentation to show; default that of the last run.")


def main(show_pairs=None, show_rows=None):
    """Prints and writes the table, and writes the page, as the flags say.

    Args:
      show_pairs, show_rows: see utils/examples.py; None shows no examples, and there are no flags for them.
    """
    runs = {name: [read_run(model_dir) for model_dir in model_dirs] for name, model_dirs in chosen_runs().items()}
    output, rows = flags.FLAGS.output, collect(runs)
    print(format_table(rows))
    write_tables(os.path.splitext(output)[0], rows)
    if show_pairs:
        show_pairs = functools.partial(show_pairs, **settings.flag_values("data_dir", "aug_ops"))
    *others, last = [run for of_name in runs.values() for run in of_name]
    if not others:
        return write_page(output, create_run_page(last, show_pairs, show_rows))
    pairs = [examples.attempt("Augmentation", show_pairs, last)] if show_pairs else []
    write_page(output, comparison_page.create(runs, flags.FLAGS.baseline, os.path.dirname(output), pairs))


def chosen_runs():
    """The dict from name to model_dirs that the flags ask for."""
    runs = parse_runs(flags.FLAGS.run)
    for name, model_dirs in (find_runs(flags.FLAGS.runs) if flags.FLAGS.runs else {}).items():
        runs[name].extend(model_dirs)
    if not runs:
        raise ValueError("run=: expected --run=NAME=MODEL_DIR, or --runs=FOLDER.")
    return runs


if __name__ == "__main__":
    cli.run(main, define_flags)
