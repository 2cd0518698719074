"""The page of one run; docs/report.md tells what each part means."""

import collections

import numpy as np

from utils import charts, diagnosis, page, statistics
from utils.page import escape, figure_of

MOST_CLASSES = 20  # that are shown one by one
MOST_CONFUSIONS = 12
NO_EVALUATION = "This run has no evaluation.npz: evaluate it again, with --do_eval."

# metrics: dict from a metric of metrics.jsonl to its label; limits: of the y axis, None for those of the values
Curves = collections.namedtuple("Curves", "caption remark metrics limits", defaults=[None])
CURVES = (
    Curves(
        "Accuracy",
        "of the weights that are evaluated; on labelled batches, of those that are trained",
        {"test_accuracy": "test", "dev_accuracy": "development", "sup_accuracy": "labelled batches"},
        (0, 1),
    ),
    Curves(
        "Loss",
        "what is minimised, and its parts",
        {"loss": "total", "sup_loss": "labelled", "unsup_loss": "consistency"}
        | {"entropy_loss": "entropy", "l2_loss": "weight decay"},
    ),
    Curves(
        "Kept examples",
        "unlabelled ones above the confidence threshold β, labelled ones below that of TSA",
        {"unsup_kept_ratio": "unlabelled", "sup_kept_ratio": "labelled"},
        (0, 1),
    ),
    Curves(
        "Confidence on unlabelled examples",
        "mean of the largest probability on the originals and on their augmented copies",
        {"original_confidence": "original", "augmented_confidence": "augmented"},
        (0, 1),
    ),
    Curves(
        "Balance of pseudo-labels",
        "1: all classes are predicted equally often; 0: one class only",
        {"pseudo_label_balance": "balance"},
        (0, 1),
    ),
    Curves(
        "TSA threshold",
        "labelled examples whose true class is more probable are left out",
        {"tsa_threshold": "threshold"},
        (0, 1),
    ),
    Curves("Learning rate", "", {"learning_rate": "learning rate"}),
    Curves("Examples per second", "all views counted", {"examples_per_second": "examples per second"}),
    Curves(
        "Waiting for input", "part of the time in which the step has no batch", {"input_wait_ratio": "waiting"}, (0, 1)
    ),
)


def create(run, examples):
    """Args:
      run: utils.report.Run; examples: HTML sections that show some.

    Returns:
      the title of the page, and its parts.
    """
    name = run.result.get("task_name", "run")
    parts = [f"<h1>{escape(name)}</h1>", page.paragraph(run.model_dir), headline(run), facts(run)]
    parts += [diagnose(run), curves(run)]
    if run.evaluation is None:
        parts.append(page.section("Classes and calibration", note=NO_EVALUATION))
    else:
        parts += [classes(run.evaluation), calibration(run.evaluation), unlabeled(run)]
    return f"{name}: {run.model_dir}", [*parts, *examples, all_figures(run), all_settings(run)]


# ---- figures --------------------------------------------------------------------------------------------------------


def percent(name, value):
    return figure_of(name, value, format_percent(value))


def format_percent(value):
    return f"{100 * value:.1f}\N{NO-BREAK SPACE}%"


def number(name, value):
    return figure_of(name, value, f"{value:,.0f}")


def duration(seconds):
    """4.2 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60:,} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


# ---- headline -------------------------------------------------------------------------------------------------------


def headline(run):
    tiles = [accuracy_tile(run), page.tile(percent("result.error_rate", run.result["error_rate"]), "error rate")]
    if "sup_size" in run.result:
        tiles.append(page.tile(number("result.sup_size", run.result["sup_size"]), "labelled examples", *dev_size(run)))
    if "step" in run.result:
        tiles.append(page.tile(number("result.step", run.result["step"]), *chosen_step(run.result)))
    if "train_seconds" in run.result:
        seconds = run.result["train_seconds"]
        time = figure_of("result.train_seconds", seconds, duration(seconds))
        tiles.append(page.tile(time, "of training", *speed(run.result)))
    return page.tiles(*tiles)


def accuracy_tile(run):
    accuracy = run.result.get("accuracy", 1 - run.result["error_rate"])
    remarks = ["accuracy on the test set"]
    if run.evaluation is not None:
        size = len(run.evaluation.labels)
        low, high = statistics.share_interval(int(run.evaluation.correct.sum()), size)
        remarks = [f"accuracy on {number('evaluation.size', size)} test examples"]
        ends = percent("evaluation.accuracy_low", low), percent("evaluation.accuracy_high", high)
        remarks.append(f"95 % interval {ends[0]} to {ends[1]}")
    if "top5_accuracy" in run.result:
        remarks.append(f"top-5 {percent('result.top5_accuracy', run.result['top5_accuracy'])}")
    return page.tile(percent("result.accuracy", accuracy), *remarks)


def dev_size(run):
    size = run.config.get("dev_size")
    return [f"and {number('config.dev_size', size)} that choose the checkpoint"] if size else []


def chosen_step(result):
    if result["step"] == result.get("train_steps", result["step"]):
        return ["steps"]
    return [f"steps, the best of {number('result.train_steps', result['train_steps'])}"]


def speed(result):
    if "examples_per_second" not in result:
        return []
    return [f"{number('result.examples_per_second', result['examples_per_second'])} examples a second"]


def facts(run):
    """The command, the machine and the versions."""
    shown = []
    if run.start:
        shown = [("command", page.command(run.start["command"])), ("hardware", escape(run.start["hardware"]))]
    versions = {name: value for name, value in run.result.get("versions", {}).items() if value}
    if versions:
        shown.append(("versions", escape(", ".join(f"{name} {value}" for name, value in versions.items()))))
    seeds = [f"{name} {run.result[name]}" for name in ("seed", "label_seed") if name in run.result]
    if seeds:
        shown.append(("seeds", escape(", ".join(seeds))))
    return page.card(page.facts(shown)) if shown else ""


# ---- diagnosis ------------------------------------------------------------------------------------------------------


def diagnose(run):
    """What utils/diagnosis.py finds in the metrics; nothing of a run whose settings are not known."""
    if not run.lines or "train_steps" not in run.config:
        return ""
    findings = [describe_finding(finding) for finding in diagnosis.diagnose(run.lines, run.config)]
    well = page.card(page.paragraph("Nothing conspicuous in the metrics.", kind=""), kind="well")
    return page.section("Diagnosis", *(findings or [well]))


def describe_finding(finding):
    heading = f"<h3>{escape(finding.name[:1].upper() + finding.name[1:])}</h3>"
    texts = [page.paragraph(text, kind="") for text in (f"{finding.saw} {finding.why}", finding.advice)]
    return page.card(heading, *texts, kind="finding")


# ---- curves ---------------------------------------------------------------------------------------------------------


def curves(run):
    drawn = [draw_curves(each, run) for each in CURVES if shown_metrics(each, run)]
    if not drawn:
        return page.section("Curves", note="This run has no metrics.jsonl.")
    return page.section("Curves", page.charts(drawn), note="Over the steps of the training; a point tells its value.")


def shown_metrics(each, run):
    """Those that the run has; without TSA its metrics say nothing."""
    of_tsa = () if run.config.get("tsa") else ("tsa_threshold", "sup_kept_ratio")
    return [name for name in each.metrics if name not in of_tsa and any(name in line for line in run.lines)]


def draw_curves(each, run):
    series, legend = [], []
    for name in shown_metrics(each, run):
        points = [(line["step"], line[name]) for line in run.lines if name in line]
        label, color = each.metrics[name], list(each.metrics).index(name)
        series.append(charts.Series(label, points, color=color))
        legend.append((color, f"{escape(label)} {last_value(name, points, each.limits)}"))
    return page.chart(each.caption, draw_series(each.caption, series, each.limits), each.remark, legend)


def last_value(metric, points, limits):
    value = points[-1][1]
    return figure_of(f"metrics.{metric}", value, format_percent(value) if limits else charts.format_number(value))


def draw_series(caption, series, limits):
    value_format = charts.percent_tick if limits else charts.format_tick
    return charts.curves(caption, series, y_range=limits, y_format=value_format)


# ---- classes --------------------------------------------------------------------------------------------------------


def classes(evaluation):
    num_classes = len(evaluation.class_names)
    counts = np.zeros([num_classes, num_classes], int)  # [true class, predicted class]
    np.add.at(counts, (evaluation.labels, evaluation.predictions), 1)
    wrong = confusion_matrix(evaluation, counts) if num_classes <= MOST_CLASSES else ""
    return page.section("Classes", page.pair(class_table(evaluation, counts), wrong or confusions(evaluation, counts)))


def class_table(evaluation, counts):
    sizes, predicted, right = counts.sum(axis=1), counts.sum(axis=0), counts.diagonal()
    order = np.arange(len(sizes))
    note = ""
    if len(sizes) > MOST_CLASSES:
        there = np.flatnonzero(sizes)
        order = there[np.argsort(right[there] / sizes[there], kind="stable")][:MOST_CLASSES]
        note = page.paragraph(f"The {len(order)} classes with the lowest accuracy, of {len(sizes)}.")
    rows = []
    for each in order:
        share = right[each] / sizes[each] if sizes[each] else None
        precise = right[each] / predicted[each] if predicted[each] else None
        rows.append([
            escape(evaluation.class_names[each]),
            number("evaluation.class_size", int(sizes[each])),
            page.meter(share or 0),
            "–" if share is None else percent("evaluation.class_accuracy", float(share)),
            "–" if precise is None else percent("evaluation.class_precision", float(precise)),
        ])  # fmt: skip
    heads = ["class", "examples", "", "accuracy", "precision"]
    return page.card("<h3>Accuracy by class</h3>", note, page.table(heads, rows, numbers=(1, 3, 4)))


def confusion_matrix(evaluation, counts):
    names = [escape(name) for name in evaluation.class_names]
    plain = max(map(len, evaluation.class_names)) <= 2
    heads = "".join(f'<th{" class=plain" * plain} title="{name}">{name}</th>' for name in names)
    rows = []
    for true, row in enumerate(counts):
        cells = [_shaded(int(value), row.sum(), true == predicted) for predicted, value in enumerate(row)]
        rows.append(f'<tr><th title="{names[true]}">{names[true]}</th>{"".join(cells)}</tr>')
    table = f'<table class="matrix"><thead><tr><th></th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    note = page.paragraph("Rows: the true class; columns: what was predicted.")
    return page.card("<h3>Confusion matrix</h3>", note, f'<div class="scroll">{table}</div>')


def _shaded(count, total, right):
    if not count:
        return f'<td class="zero">{figure_of("evaluation.confusion", 0, 0)}</td>'
    strength = f"var(--{'c2' if right else 'c1'}) {15 + 60 * count / total:.0f}%"
    style = f"background:color-mix(in srgb, {strength}, transparent)"
    return f'<td style="{style}">{figure_of("evaluation.confusion", count, count)}</td>'


def confusions(evaluation, counts):
    """The most frequent mistakes, where a matrix would be too large."""
    mistakes = counts - np.diag(counts.diagonal())
    order = np.argsort(mistakes, axis=None, kind="stable")[::-1][:MOST_CONFUSIONS]
    rows = []
    for true, predicted in zip(*np.unravel_index(order, mistakes.shape)):
        if mistakes[true, predicted]:
            names = [escape(evaluation.class_names[each]) for each in (true, predicted)]
            rows.append([*names, number("evaluation.confusion", int(mistakes[true, predicted]))])
    return page.card("<h3>Most frequent mistakes</h3>", page.table(["class", "taken for", "times"], rows, numbers=(2,)))


# ---- calibration ----------------------------------------------------------------------------------------------------


def calibration(evaluation):
    confidence, correct = evaluation.confidence, evaluation.correct
    bins = statistics.reliability(confidence, correct)
    error = percent("evaluation.calibration_error", statistics.calibration_error(bins))
    suggestion = statistics.suggest_threshold(confidence, correct)
    diagram = page.chart(
        "Reliability",
        charts.reliability_diagram("Accuracy by confidence", bins),
        "bars: how many are right; strokes: how sure the classifier was; small figures: examples",
        [(0, f"expected calibration error {error}")],
    )
    coverage = page.chart(
        "Accuracy of the surest predictions",
        coverage_curve(confidence, correct, suggestion),
        "if only the surest part of the predictions counts",
    )
    return page.section("Calibration", page.charts([diagram, coverage]), suggest(suggestion))


def coverage_curve(confidence, correct, suggestion):
    order = np.argsort(-confidence, kind="stable")
    counts = np.arange(1, len(order) + 1)
    accuracy = np.cumsum(correct[order]) / counts
    points = [(count / len(order), value) for count, value in zip(counts.tolist(), accuracy.tolist())]
    marks = []
    if suggestion and suggestion.value > 0:
        marks = [(suggestion.coverage, suggestion.accuracy, f"confidence of at least {suggestion.value:g}")]
    lowest = min(accuracy[len(order) // 20 :].min(), 0.9)
    limits = (np.floor(10 * lowest) / 10, 1)
    kept = [point for point in points if point[1] >= limits[0]]
    return charts.curves(
        "Accuracy by coverage", [charts.Series("accuracy", kept)], "part of the predictions", limits,
        charts.percent_tick, marks, charts.percent_tick,
    )  # fmt: skip


def suggest(suggestion):
    target = f"{statistics.TARGET:.0%}".replace("%", " %")
    if suggestion is None:
        return page.paragraph(f"No threshold leaves enough predictions of which {target} are right.", kind="")
    if suggestion.value == 0:
        return page.paragraph(f"More than {target} of all predictions are right: no threshold is needed for that.", "")
    value = figure_of("evaluation.threshold", suggestion.value, f"{suggestion.value:g}")
    kept = percent("evaluation.coverage", suggestion.coverage)
    right = percent("evaluation.accuracy_above", suggestion.accuracy)
    return (
        f"<p>Suggested: take predictions with a probability below <b>{value}</b> for too unsure. Of the test examples "
        f"{kept} are above, and {right} of these are right; the aim is {target}. To mark the others when predicting: "
        f"<code>--unsure_below={suggestion.value:g}</code></p>"
    )


# ---- unlabelled examples --------------------------------------------------------------------------------------------


def unlabeled(run):
    evaluation, threshold = run.evaluation, run.config.get("uda_confidence_thresh", -1)
    if not len(evaluation.pseudo_labels):
        return page.section("Unlabelled examples", note="This run was trained without unlabelled examples.")
    views = {"original": evaluation.original_confidence, "augmented": evaluation.augmented_confidence}
    kept = percent("evaluation.unlabeled_kept", float(np.mean(views["original"] > threshold)))
    means = {name: percent(f"evaluation.{name}_confidence", float(values.mean())) for name, values in views.items()}
    legend = [(color, f"{name}, mean {mean}") for color, (name, mean) in enumerate(means.items())]
    remark = f"dashed: the threshold β = {threshold:g}" if 0 <= threshold <= 1 else ""
    drawing = charts.histogram("Confidence", views, "confidence", threshold if remark else None)
    drawn = [page.chart("Confidence", drawing, remark, legend), class_shares(evaluation)]
    size = number("evaluation.unlabeled_size", len(evaluation.pseudo_labels))
    above = f" {kept} of the originals are above the threshold." if remark else ""
    note = f'<p class="soft">What the trained network says about {size} of them.{above}</p>'
    return page.section("Unlabelled examples", note, page.charts(drawn))


def class_shares(evaluation):
    counts = np.bincount(evaluation.pseudo_labels, minlength=len(evaluation.class_names))
    order = np.argsort(-counts, kind="stable")[:MOST_CLASSES] if len(counts) > MOST_CLASSES else np.arange(len(counts))
    shares = counts / counts.sum()
    rows = [
        [
            escape(evaluation.class_names[each]),
            page.meter(shares[each]),
            percent("evaluation.predicted_share", float(shares[each])),
        ]
        for each in order
    ]
    return page.card("<h3>Predicted classes</h3>", page.table(["class", "", "share"], rows, numbers=(2,)))


# ---- everything -----------------------------------------------------------------------------------------------------


def all_figures(run):
    if not run.lines:
        return ""
    names = ["step", *dict.fromkeys(name for line in run.lines for name in line if name != "step")]
    lines = charts.thin_out(run.lines)
    rows = [[figure_of(f"metrics.{name}", line[name], charts.format_number(line[name])) if name in line else ""
             for name in names] for line in lines]  # fmt: skip
    note = "" if len(lines) == len(run.lines) else page.paragraph(f"{len(lines)} of {len(run.lines)} lines.")
    table = page.table(names, rows, numbers=range(len(names)))
    return page.section("Everything", page.details("All figures of metrics.jsonl", note, table))


def all_settings(run):
    shown = [(name, f"<code>{escape(value)}</code>") for name, value in run.config.items()]
    return page.details("All settings", page.card(page.facts(shown))) if shown else ""
