"""The page that compares runs: draws, intervals, curves with bands; docs/report.md tells what each part means."""

import os
import urllib.parse
from typing import NamedTuple

import numpy as np

from utils import charts, files, page, statistics
from utils.page import escape, figure_of
from utils.run_page import CURVES, MOST_CLASSES, draw_series, duration, format_percent, last_value, number, percent


class Difference(NamedTuple):
    """Error rate of one name minus that of another."""

    mean: float
    interval: statistics.Interval
    how: str


def create(runs, baseline, folder, examples):
    """Args:
      runs: dict from name to a list of utils.report.Run; baseline: one of the names, "" for the first.
      folder: where the page will lie; examples: HTML sections that show some.

    Returns:
      the title of the page, and its parts.
    """
    baseline = baseline or next(iter(runs))
    if baseline not in runs:
        raise ValueError(f"baseline={baseline}: expected one of {', '.join(runs)}.")
    tasks = {run.result.get("task_name", "") for of_name in runs.values() for run in of_name}
    title = (
        f"{', '.join(sorted(filter(None, tasks)))}: {' and '.join(runs) if len(runs) < 4 else f'{len(runs)} settings'}"
    )
    parts = [f"<h1>{escape(title)}</h1>", results(runs, baseline), curves(runs), classes(runs), *examples]
    return title, [*parts, list_runs(runs, folder)]


# ---- error rates ----------------------------------------------------------------------------------------------------


def results(runs, baseline):
    rates = {name: [run.result["error_rate"] for run in of_name] for name, of_name in runs.items()}
    high = max(value for values in rates.values() for value in values) or 1.0
    rows = []
    for color, (name, values) in enumerate(rates.items()):
        rows.append([
            escape(name),
            mean_and_deviation("error_rate", values),
            number("comparison.runs", len(values)),
            calibration_errors(runs[name]),
            charts.strip(f"error rates of {name}", values, high, color),
            "" if name == baseline else describe(compare(runs[name], runs[baseline])),
        ])  # fmt: skip
    ends = f"0 to {format_percent(high)}"
    heads = ["", "error rate", "runs", "calibration error", f"each run, and the mean, {ends}"]
    heads.append(f"difference to {baseline}")
    note = "Mean ± standard deviation over the draws of the labels. Differences in points, with 95 % intervals."
    return page.section("Error rates", page.card(page.table(heads, rows, (1, 2, 3), "stack")), note=note)


def mean_and_deviation(name, values):
    mean = figure_of(f"comparison.{name}", np.mean(values), f"{100 * np.mean(values):.1f} %")
    if len(values) == 1:
        return mean
    deviation = np.std(values, ddof=1)
    return f"{mean} ± {figure_of(f'comparison.{name}_deviation', deviation, f'{100 * deviation:.1f}')}"


def calibration_errors(runs):
    """Their mean and deviation, where the runs tell."""
    evaluations = [run.evaluation for run in runs if run.evaluation is not None]
    bins = [statistics.reliability(each.confidence, each.correct) for each in evaluations]
    return mean_and_deviation("calibration_error", list(map(statistics.calibration_error, bins))) if bins else ""


def compare(runs, baseline_runs):
    """The Difference of two lists of runs, or what stands in its way, as a text."""
    by_draw, baseline_by_draw = _by_draw(runs), _by_draw(baseline_runs)
    draws = [draw for draw in by_draw if draw in baseline_by_draw]
    if len(by_draw) < len(runs) or len(baseline_by_draw) < len(baseline_runs) or not draws:
        return "no draws in common, by seed and label_seed"
    if len(draws) > 1:
        pairs = [(by_draw[draw].result["error_rate"], baseline_by_draw[draw].result["error_rate"]) for draw in draws]
        differences = [rate - other for rate, other in pairs]
        interval = statistics.mean_interval(differences)
        return Difference(float(np.mean(differences)), interval, f"t, {len(draws)} paired draws")
    return _compare_pair(by_draw[draws[0]], baseline_by_draw[draws[0]])


def _by_draw(runs):
    return {(run.result.get("label_seed"), run.result.get("seed")): run for run in runs}


def _compare_pair(run, other):
    evaluations = run.evaluation, other.evaluation
    if None in evaluations or not np.array_equal(*(each.labels for each in evaluations)):
        return "one draw, and no evaluation.npz of the same test examples"
    errors, other_errors = (~each.correct for each in evaluations)
    difference = float(errors.mean() - other_errors.mean())
    interval = statistics.paired_interval(errors, other_errors)
    return Difference(difference, interval, f"bootstrap, {len(errors):,} test examples")


def describe(difference):
    if isinstance(difference, str):
        return f'<span class="soft">{escape(difference)}</span>'
    mean, low, high = (
        figure_of(f"comparison.{name}", value, f"{100 * value:+.1f}".replace("-", "−"))
        for name, value in zip(("difference", "low", "high"), (difference.mean, *difference.interval))
    )
    return f'<b>{mean}</b> [{low}, {high}] <span class="soft">{escape(difference.how)}</span>'


# ---- curves ---------------------------------------------------------------------------------------------------------


def curves(runs):
    drawn = [
        draw_metric(runs, name, f"{each.caption}: {label}" if len(each.metrics) > 1 else each.caption, each.limits)
        for each in CURVES
        for name, label in each.metrics.items()
        if has_metric(runs, name)
    ]
    note = "Means over the runs of a name; bands: ± one standard deviation."
    return page.section("Curves", page.charts(drawn), note=note) if drawn else ""


def has_metric(runs, metric):
    """Whether some run has it, with values that are not all the same."""
    values = {line[metric] for of_name in runs.values() for run in of_name for line in run.lines if metric in line}
    return len(values) > 1


def draw_metric(runs, metric, caption, limits):
    series, legend = [], []
    for color, (name, of_name) in enumerate(runs.items()):
        points, band = mean_curve(of_name, metric)
        if points:
            series.append(charts.Series(name, points, band, color))
            legend.append((color, f"{escape(name)} {last_value(metric, points, limits)}"))
    return page.chart(caption, draw_series(caption, series, limits), legend=legend)


def mean_curve(runs, metric):
    """Points (step, mean) at the steps that all of these runs have, and (step, mean − deviation, mean + deviation)."""
    by_step = [{line["step"]: line[metric] for line in run.lines if metric in line} for run in runs]
    steps = sorted(set.intersection(*map(set, by_step)))
    values = np.array([[of_run[step] for of_run in by_step] for step in steps]).reshape(len(steps), len(runs))
    points = list(zip(steps, values.mean(axis=1).tolist()))
    if len(runs) == 1 or not steps:
        return points, None
    deviations = values.std(axis=1, ddof=1).tolist()
    return points, [(step, mean - width, mean + width) for (step, mean), width in zip(points, deviations)]


# ---- classes --------------------------------------------------------------------------------------------------------


def classes(runs):
    """Accuracy of each class, where all runs tell it."""
    evaluations = {name: [run.evaluation for run in of_name] for name, of_name in runs.items()}
    every = [each for of_name in evaluations.values() for each in of_name]
    if None in every or len({tuple(each.class_names) for each in every}) > 1:
        return ""
    class_names = every[0].class_names
    if len(class_names) > MOST_CLASSES:
        return ""
    columns = [class_accuracies(of_name) for of_name in evaluations.values()]
    rows = [
        [escape(name), *(mean_and_deviation("class_accuracy", values) if values else "–" for values in row)]
        for name, *row in zip(class_names, *columns)
    ]
    table = page.table(["class", *runs], rows, numbers=range(1, len(runs) + 1))
    return page.section("Classes", page.card(table, kind="narrow"), note="Accuracy on the test examples of each class.")


def class_accuracies(evaluations):
    """For each class a list of its accuracy in each evaluation; empty if it has no test examples."""
    rows = []
    for each in range(len(evaluations[0].class_names)):
        of_class = [(evaluation.correct, evaluation.labels == each) for evaluation in evaluations]
        rows.append([float(correct[mask].mean()) for correct, mask in of_class if mask.any()])
    return rows


# ---- runs -----------------------------------------------------------------------------------------------------------


def list_runs(runs, folder):
    rows = []
    for name, of_name in runs.items():
        for run in of_name:
            result, seconds = run.result, run.result.get("train_seconds")
            rows.append([
                escape(name),
                link(run.model_dir, folder),
                percent("result.error_rate", result["error_rate"]),
                number("result.sup_size", result["sup_size"]) if "sup_size" in result else "",
                escape(result.get("label_seed", "")),
                number("result.step", result["step"]) if "step" in result else "",
                figure_of("result.train_seconds", seconds, duration(seconds)) if seconds is not None else "",
                escape(run.start.get("hardware", "")),
            ])  # fmt: skip
    heads = ["", "run", "error rate", "labels", "label seed", "steps", "training", "hardware"]
    return page.section("Runs", page.card(page.table(heads, rows, range(2, 7), "stack")))


def link(model_dir, folder):
    """The name of a run, and the way to its own page if it has one."""
    path = os.path.join(model_dir, "report.html")
    if not files.exists(path):
        return escape(model_dir)
    address = urllib.parse.quote(os.path.relpath(path, folder or "."))
    return f'<a href="{escape(address)}">{escape(model_dir)}</a>'
