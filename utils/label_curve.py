"""Draws the learning curve of finished runs: error rate against the number of labels, a line for each name.

    python -m utils.label_curve --run="supervised=runs/a_10" --run="supervised=runs/a_20" --run="UDA=runs/b_10" ...

Runs of one name and number of labels are draws: the curve is their mean, with a bar of one deviation on either side.
"""

import collections
import csv
import os

import numpy as np
from absl import flags
from matplotlib.figure import Figure

from utils import cli, files, report

FLAGS = flags.FLAGS
Point = collections.namedtuple("Point", "name labels error_rate deviation runs")


def collect(runs):
    """Args:
      runs: dict from name to a list of model_dirs.

    Returns:
      A list of Point, by name and number of labels; the deviation of a single run is None.
    """
    groups = collections.defaultdict(list)
    for name, model_dirs in runs.items():
        for model_dir in model_dirs:
            result = report.read_run(model_dir).result
            if "sup_size" not in result:
                raise ValueError(f"{model_dir}/result.json has no sup_size: {report.EVALUATE}")
            groups[name, result["sup_size"]].append(result["error_rate"])
    return [Point(*key, np.mean(rates), deviation_of(rates), len(rates)) for key, rates in sorted(groups.items())]


def deviation_of(values):
    return np.std(values, ddof=1) if len(values) > 1 else None


def write(path, points):
    with files.replacing(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Point._fields)
        writer.writerows(points)  # None is written as ""


def draw(path, points):
    figure = Figure(figsize=(6, 4.5), layout="tight")
    axes = figure.subplots()
    for name in dict.fromkeys(point.name for point in points):
        line = [point for point in points if point.name == name]
        rates, bars = [100 * point.error_rate for point in line], [100 * (point.deviation or 0) for point in line]
        axes.errorbar([point.labels for point in line], rates, bars, marker="o", capsize=3, label=name)
    labels = sorted({point.labels for point in points})
    axes.set(xscale="log", xlabel="labels", ylabel="error rate, %", ylim=(0, None))
    axes.set_xticks(labels, map(str, labels))
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right")
    files.write_figure(path, figure)


def define_flags():
    flags.DEFINE_multi_string("run", None, "NAME=MODEL_DIR of a finished run; repeat for more.", required=True)
    flags.DEFINE_string("output", "curve.png", "Picture to write; the numbers go beside it, as .csv.")


def main():
    points = collect(report.parse_runs(FLAGS.run))
    with files.explain_refusal(FLAGS.output, report.ADVICE):
        write(os.path.splitext(FLAGS.output)[0] + ".csv", points)
        draw(FLAGS.output, points)
    for point in points:
        deviation = "" if point.deviation is None else f" ± {100 * point.deviation:.1f}"
        print(f"{point.name}, {point.labels} labels: {point.error_rate:.1%}{deviation} ({point.runs} runs)")
    print(f"learning curve: {FLAGS.output}")


if __name__ == "__main__":
    cli.run(main, define_flags)
