"""Results as data: results/*.csv has one line a run, and the tables and plots in the documents are made from it.

    python -m utils.results add RUN_DIR --experiment=digits --method=UDA   # a finished run
    python -m utils.results write                                          # all tables and plots anew

An experiment is one of results/experiments.json, which has its own file of runs, or a script such as run_svhn_gpu: its
runs, sent in by whoever has the hardware, are in results/contributed.csv. Of an experiment with "learning_curves",
results/curves has what its runs had on the test examples while they were training. results/trials.csv has what was
tried beside the runs, such as settings on a development split. In a document, the lines between
<!-- results: KIND ... --> and <!-- end of results --> are made by the function of that name in BLOCKS.
"""

import collections
import csv
import functools
import os
import re
import shlex
import statistics
import sys
from typing import NamedTuple

from absl import flags

from utils import cli, files, locks, plots
from utils.statistics import mean_interval

FOLDER, CURVES, PLOTS = "results", "results/curves", "docs/plots"
EXPERIMENTS, CONTRIBUTED = f"{FOLDER}/experiments.json", f"{FOLDER}/contributed.csv"
TRIALS = f"{FOLDER}/trials.csv"
DOCUMENTS = ("README.md", "docs/results.md", "docs/experiments.md")
BLOCK = re.compile(r"(<!-- results: (.*?) -->\n)(.*?)(<!-- end of results -->)", re.DOTALL)


class Run(NamedTuple):
    """A line of a file. What is not known is None, in the file nothing."""

    experiment: str
    method: str
    labels: int
    draw: int  # label_seed
    seed: int
    error: float  # a share of the test examples
    steps: int | None = None
    seconds: float | None = None  # of training
    commit: str | None = None
    versions: str | None = None
    command: str | None = None


class Point(NamedTuple):
    """A line of a learning curve: the error on the test examples after some steps of a run."""

    experiment: str
    method: str
    labels: int
    draw: int
    seed: int
    step: int
    error: float


class Trial(NamedTuple):
    """What was tried beside the runs of an experiment. Its draws were not kept one by one."""

    experiment: str
    setting: str
    data: str  # what it was measured on
    draws: int
    measure: str
    value: float  # a share
    deviation: float | None = None


TYPES = {"experiment": str, "method": str, "labels": int, "draw": int, "seed": int, "step": int, "error": float}
TYPES |= {"steps": int, "seconds": float, "commit": str, "versions": str, "command": str}
TYPES |= {"setting": str, "data": str, "draws": int, "measure": str, "value": float, "deviation": float}
MEASURED = ("error", "value")


# ---- files ----------------------------------------------------------------------------------------------------------


def read_runs(path):
    """The runs of a file, in its order; [] if there is none."""
    return _read_lines(path, Run)


def read_points(experiment):
    """The learning curves of an experiment; [] if there are none."""
    return _read_lines(curves_path_of(experiment), Point)


def read_trials():
    """What was tried, in its order; [] if there is nothing."""
    return _read_lines(TRIALS, Trial)


def _read_lines(path, kind):
    if not os.path.exists(path):
        return []
    with files.open_file(path) as file:
        rows = list(csv.reader(file))
    if not rows or rows[0] != list(kind._fields):
        raise ValueError(f"{path}, line 1: expected the columns {','.join(kind._fields)}.")
    lines = [_parse(row, kind, f"{path}, line {number}") for number, row in enumerate(rows[1:], start=2)]
    for key, count in collections.Counter(map(identify, lines)).items():
        if count > 1:
            raise ValueError(f"{path} has {count} lines of {describe(key, kind)}: delete all but one.")
    return lines


def _parse(row, kind, where):
    if len(row) != len(kind._fields):
        raise ValueError(f"{where}: expected {len(kind._fields)} columns, found {len(row)}.")
    values = {}
    for name, text in zip(kind._fields, row):
        try:
            values[name] = TYPES[name](text) if text else None
        except ValueError as error:
            raise ValueError(f"{where}: {name}={text}: expected a {TYPES[name].__name__}.") from error
        if values[name] is None and name not in kind._field_defaults:
            raise ValueError(f"{where}: {name} is missing.")
    for name in MEASURED:
        if not 0 <= values.get(name, 0) <= 1:
            raise ValueError(f"{where}: {name}={values[name]}: expected a share, from 0 to 1.")
    return kind(**values)


def write_lines(path, lines):
    """Lines of one kind; at least one."""
    with files.explain_refusal(path, "make room."), files.replacing(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(lines[0]._fields)
        writer.writerows(lines)  # None becomes nothing


def identify(line):
    """What no two lines of a file have in common."""
    if line.experiment not in read_experiments():  # of what is sent in, several people may have the same
        return line
    return line[: next(place for place, name in enumerate(line._fields) if name in MEASURED)]


def describe(key, kind=Run):
    return ", ".join(f"{name}={value}" for name, value in zip(kind._fields, key))


@functools.cache
def read_experiments(path=EXPERIMENTS):
    """The experiments by name; one that is `like` another has its entries, too, unless it has its own."""
    entries, experiments = files.check_fields(path, files.read_json(path), {}), {}
    for name, entry in entries.items():
        if "like" in entry and entry["like"] not in experiments:
            raise ValueError(f"{path}: {name}: like={entry['like']}: expected an experiment that stands before it.")
        experiments[name] = experiments.get(entry.get("like"), {}) | entry
    return experiments


def root_of(experiment):
    """The experiment that this one is like, or that that one is like, …"""
    like = read_experiments()[experiment].get("like")
    return root_of(like) if like else experiment


def path_of(experiment):
    """The file of an experiment's runs."""
    if experiment in read_experiments():
        return f"{FOLDER}/{experiment}.csv"
    if experiment.startswith("run_") and os.path.exists(f"scripts/{experiment}.sh"):
        return CONTRIBUTED
    raise ValueError(
        f"experiment={experiment}: expected one of {', '.join(read_experiments())}, or a script, such as run_svhn_gpu."
    )


def curves_path_of(experiment):
    """The file of an experiment's learning curves."""
    return f"{CURVES}/{experiment}.csv"


# ---- adding a run ---------------------------------------------------------------------------------------------------


def read_run(model_dir, experiment, method):
    """The line of a finished run, from what its training left in `model_dir`."""
    result = _read_file(model_dir, "result.json", {"error_rate": float, "step": int, "sup_size": int, "seed": int})
    start = _read_file(model_dir, "run.json", {"command": str}) if files.exists(f"{model_dir}/run.json") else {}
    versions = dict(result.get("versions", {}))
    commit = versions.pop("git_commit", None)
    return Run(
        experiment,
        method,
        labels=result["sup_size"],
        draw=max(result.get("label_seed", 0), 0),  # -1, ImageNet's among them, is the original release's only draw
        seed=result["seed"],
        error=round(result["error_rate"], 6),
        steps=result["step"],
        seconds=round(result["train_seconds"], 1) if result.get("train_seconds") else None,
        commit=shorten_commit(commit),
        versions=" ".join(f"{name}={version}" for name, version in versions.items()) or None,
        command=start.get("command"),
    )


def shorten_commit(commit):
    """Twelve digits, and "-dirty" where run_dir.git_commit has it; None for nothing."""
    return commit[:12] + "-dirty" * commit.endswith("-dirty") if commit else None


def _read_file(model_dir, name, fields):
    path = os.path.join(model_dir, name)
    if not files.exists(path):
        raise ValueError(f"{path} does not exist: finish that run with --do_train --do_eval.")
    return files.check_fields(path, files.read_json(path), fields, advice="evaluate that run again, with --do_eval.")


def add(run, model_dir):
    """Appends a run to the file of its experiment, and its learning curve where they are kept. Returns the path."""
    path = path_of(run.experiment)
    check_run(run)
    with locks.hold(FOLDER, "another addition", "", wait=True):
        runs = read_runs(path)
        if identify(run) in map(identify, runs):
            raise ValueError(f"{path} has a line of {describe(identify(run))} already: delete it first, to replace it.")
        if read_experiments().get(run.experiment, {}).get("learning_curves"):
            from utils import run_dir  # which loads TensorFlow

            _add_curve(run, run_dir.read_metrics(model_dir))
        write_lines(path, [*runs, run])
    return path


def check_run(run):
    """That the tables of its experiment have a place for it."""
    entry = read_experiments().get(run.experiment, {})
    for name, column in {"method": "methods", "labels": "labels"}.items():
        if entry and getattr(run, name) not in entry[column]:
            expected = " or ".join(f"{value}" for value in entry[column])
            raise ValueError(f"{name}={getattr(run, name)}: expected {expected}, as {run.experiment} has.")
    if entry and run.seed != run.draw:
        raise ValueError(f"seed={run.seed}, label_seed={run.draw}: expected the same, as {run.experiment} has.")


def _add_curve(run, metrics):
    """Replaces what is there of this run; its deleted line says that it is made anew."""
    key = identify(run)
    others = [point for point in read_points(run.experiment) if point[: len(key)] != key]
    tested = [line for line in metrics if "test_accuracy" in line]
    own = [Point(*key, line["step"], round(1 - line["test_accuracy"], 6)) for line in tested]
    if own:
        files.make_folder(CURVES)
        write_lines(curves_path_of(run.experiment), [*others, *own])


# ---- statistics -----------------------------------------------------------------------------------------------------


def group(lines, column="labels"):
    """A dict from method, in the order of the experiment's table, to a dict from number of labels to runs by draw.

    Args:
      column: "step" for points, to have them by their step.
    """
    names = read_experiments().get(lines[0].experiment, {}).get("methods", {}) if lines else {}
    methods = {name: {} for name in names}
    for line in sorted(lines, key=lambda line: (getattr(line, column), line.draw, line.seed)):
        methods.setdefault(line.method, {}).setdefault(getattr(line, column), []).append(line)
    return {method: groups for method, groups in methods.items() if groups}


def value_of(run):
    """Per cent, as the experiment is told: error rate or accuracy."""
    return 100 * run.error if measure_of(run.experiment) == "error rate" else 100 * (1 - run.error)


def measure_of(experiment):
    return read_experiments().get(experiment, {}).get("measure", "error rate")


def mean_and_deviation(runs):
    """ "27.5 % ± 5.2", the deviation with n − 1 below the fraction bar; a single run has none."""
    values = [value_of(run) for run in runs]
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f} %{deviation}"


# ---- blocks of a document -------------------------------------------------------------------------------------------


def format_table(rows):
    """Markdown; the first row is the heading."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"


def table(experiment):
    """Mean ± deviation of each method, one column for each number of labels."""
    methods = group(read_runs(path_of(experiment)))
    if not methods:
        return not_run(experiment)
    sizes = sorted({labels for by_labels in methods.values() for labels in by_labels})
    heading = [measure_of(experiment)] if len(sizes) == 1 else [f"{labels:,} labels" for labels in sizes]
    rows = [["", *heading, "draws"]]
    for method, by_labels in methods.items():
        cells = [mean_and_deviation(by_labels[labels]) if labels in by_labels else "" for labels in sizes]
        numbers = sorted({len(runs) for runs in by_labels.values()})
        rows.append([method, *cells, " or ".join(map(str, numbers))])
    return format_table(rows)


def draws(experiment):
    """Every single draw; of experiments with one number of labels."""
    methods = group(read_runs(path_of(experiment)))
    if not methods:
        return not_run(experiment)
    numbers = sorted({run.draw for by_labels in methods.values() for runs in by_labels.values() for run in runs})
    rows = [["", *map(str, numbers), "mean ± deviation"]]
    for method, by_labels in methods.items():
        (runs,) = by_labels.values()
        values = {run.draw: f"{value_of(run):.1f}" for run in runs}
        rows.append([method, *(values.get(number, "") for number in numbers), mean_and_deviation(runs)])
    return format_table(rows)


def margins(experiment, *pairs):
    """By how much methods are ahead of others in the same draws; `pairs`: method, baseline, method, baseline, …"""
    lines = [f"- {what}: {describe_gains(gains_of(errors))}.\n" for what, errors in _compare(experiment, pairs)]
    return "".join(lines) or not_run(experiment)


def ratios(experiment, *pairs):
    """What part of others' errors methods have in the same draws; `pairs` as for margins."""
    lines = [f"- {what}: {describe_ratio(errors)}.\n" for what, errors in _compare(experiment, pairs)]
    return "".join(lines) or not_run(experiment)


def _compare(experiment, pairs):
    """Yields what is compared, for each pair and number of labels, and (error, baseline error) of each draw of both."""
    methods = group(read_runs(path_of(experiment)))
    for method, baseline in zip(pairs[::2], pairs[1::2]):
        for labels, runs in methods.get(method, {}).items():
            others = {(run.draw, run.seed): run.error for run in methods.get(baseline, {}).get(labels, [])}
            errors = [(run.error, others[run.draw, run.seed]) for run in runs if (run.draw, run.seed) in others]
            if errors:
                size = f", {labels:,} labels" if len(methods[method]) > 1 else ""
                yield f"{method} against {baseline}{size}", errors


def gains_of(errors):
    """Percentage points by which the error is lower than that of the baseline."""
    return [100 * (baseline - error) for error, baseline in errors]


def describe_ratio(errors):
    """Of the means, which is what a table tells, and of each draw."""
    mean, mean_of_baseline = map(statistics.fmean, zip(*errors))
    single = [format_ratio(error, baseline) for error, baseline in errors]
    draws = f" (draw by draw {', '.join(single)})" if len(single) > 1 else ", one draw"
    return f"{format_ratio(mean, mean_of_baseline)} of its errors{draws}"


def format_ratio(error, baseline):
    return f"{error / baseline:.2f}" if baseline else "–"


def describe_gains(gains):
    ahead = sum(gain > 1e-9 for gain in gains)
    if len(gains) == 1:
        points = f"{abs(gains[0]):.1f} points {'ahead' if ahead else 'behind'}"
        return f"{points if abs(gains[0]) > 1e-9 else 'equal'}, one draw"
    mean = f"{format_points(statistics.fmean(gains))} on average"
    mean += " (95 % interval {} to {})".format(*map(format_points, mean_interval(gains)))
    if ahead == len(gains):
        return f"ahead in every draw, by {min(gains):.1f} points at least and {mean}"
    return f"ahead in {ahead} of {len(gains)} draws, by {mean}"


def format_points(value):
    return f"{round(value, 1) + 0.0:.1f}".replace("-", "−")  # never -0.0


def plot(experiment):
    """A link to the picture that write() makes."""
    if not read_runs(path_of(experiment)):
        return ""
    return _link(experiment, "of each draw", experiment)


def _link(experiment, what, name):
    folder = PLOTS.removeprefix("docs/")
    return f"![{title_of(experiment)}: {measure_of(experiment)} {what}]({folder}/{name}.svg)\n"


def steps(experiment, *numbers):
    """The learning curves: mean ± deviation after some steps, and the step of the best mean; with their picture."""
    methods = group(read_points(experiment), "step")
    if not methods:
        return not_run(experiment)
    numbers = list(map(int, numbers))
    rows = [["", *(f"{number:,} steps" for number in numbers), "at its best", "draws"]]
    for method, by_step in methods.items():
        cells = [mean_and_deviation(by_step[number]) if number in by_step else "" for number in numbers]
        best = min(by_step, key=lambda step: statistics.fmean(point.error for point in by_step[step]))
        num_draws = str(len(by_step[best]))
        rows.append([method, *cells, f"{mean_and_deviation(by_step[best])} (step {best:,})", num_draws])
    return format_table(rows) + "\n" + _link(experiment, "while training", f"{experiment}_steps")


def trials(experiment, *measures):
    """What was tried beside the runs: a table of each measure, or of the given ones."""
    found, tables = [trial for trial in read_trials() if trial.experiment == experiment], []
    for measure in measures or dict.fromkeys(trial.measure for trial in found):
        rows = [["", "measured on", measure, "draws"]]
        for trial in (trial for trial in found if trial.measure == measure):
            deviation = f" ± {100 * trial.deviation:.1f}" if trial.deviation is not None else ""
            rows.append([trial.setting, trial.data, f"{100 * trial.value:.1f} %{deviation}", str(trial.draws)])
        tables += [format_table(rows)] if len(rows) > 1 else []
    if not tables:
        raise ValueError(f"{TRIALS} has nothing of {' '.join([experiment, *measures])}.")
    return "\n".join(tables)


def summary():
    """README's table: supervised training beside UDA."""
    rows = [["data", "labels", "measure", "supervised", "UDA", "draws"]]
    for experiment, entry in read_experiments().items():
        runs = read_runs(path_of(experiment)) if entry.get("summary") else []
        for labels in sorted({run.labels for run in runs}):
            methods = {name: sizes[labels] for name, sizes in group(runs).items() if labels in sizes}
            supervised, uda = entry["summary"]["supervised"], entry["summary"]["UDA"]
            if uda in methods and all(name in methods for name in supervised):
                cells = [
                    name.removeprefix(supervised[0]) + f" {mean_and_deviation(methods[name])}" for name in supervised
                ]
                found = [title_of(experiment), f"{labels:,}", measure_of(experiment), ",".join(cells).strip()]
                rows.append([*found, mean_and_deviation(methods[uda]), str(len(methods[uda]))])
    return format_table(rows)


def others():
    """A section for each experiment that README's table does not have: each method beside the first one."""
    sections, missing, tried = [], [], {trial.experiment for trial in read_trials()}
    for experiment, entry in read_experiments().items():
        if entry.get("summary"):
            continue
        methods = list(group(read_runs(path_of(experiment))))
        if methods:
            pairs = [name for method in methods[1:] for name in (method, methods[0])]
            title = title_of(experiment)
            parts = [f"### {title[:1].upper()}{title[1:]}\n", table(experiment), margins(experiment, *pairs)]
            parts += [plot(experiment), *([trials(experiment)] if experiment in tried else [])]
            sections.append("\n".join(parts))
        else:
            missing.append(f"`{experiment}`")
    if missing:
        command = "`bash scripts/reproduce_small.sh --only=NAME --add`"
        sections.append(f"Not run yet: {', '.join(missing)}. {command} runs one of them.\n")
    return "\n".join(sections)


def contributed(content):
    """The paper's experiments, as they stand there, with the column of the runs that were sent in."""
    runs = collections.defaultdict(list)
    for run in read_runs(CONTRIBUTED):
        if f"`{run.experiment}.sh`" not in content:
            raise ValueError(f"{CONTRIBUTED} has a run of {run.experiment}, which has no row in docs/experiments.md.")
        runs[run.experiment].append(run)
    heading, _, *rows = [line.strip("| \n").split(" | ") for line in content.splitlines()]
    place = heading.index("contributed")
    for row in rows:
        sent = [run for name in re.findall(r"`(\w+)\.sh`", row[0]) for run in runs[name]]
        row[place] = describe_sent(sent)
    return format_table([heading, *rows])


def describe_sent(runs):
    cells = [
        f"{method}, {labels:,} labels: {mean_and_deviation(found)} ({len(found)})"
        for method, by_labels in group(runs).items()
        for labels, found in by_labels.items()
    ]
    return "; ".join(cells)


def title_of(experiment):
    return read_experiments()[experiment].get("title", experiment)


def not_run(experiment):
    return f"Not run yet: `bash scripts/reproduce_small.sh --only={experiment} --add`.\n"


BLOCKS = {
    "table": table,
    "draws": draws,
    "margins": margins,
    "ratios": ratios,
    "plot": plot,
    "steps": steps,
    "trials": trials,
    "summary": summary,
    "others": others,
    "contributed": contributed,
}


def render(document):
    """The text of a document with all of its blocks made anew."""

    def replace(match):
        if "<!-- results:" in match[3]:
            raise ValueError(f"{document}: results: {match[2]}: expected <!-- end of results --> before the next one.")
        kind, *arguments = shlex.split(match[2])
        if kind not in BLOCKS:
            raise ValueError(f"{document}: results: {match[2]}: expected one of {', '.join(BLOCKS)}.")
        made = BLOCKS[kind](match[3]) if kind == "contributed" else BLOCKS[kind](*arguments)
        return f"{match[1]}{made}{match[4]}"

    with files.open_file(document) as file:
        return BLOCK.sub(replace, file.read())


def render_plots():
    """The pictures of all experiments with runs, as a dict from path to SVG."""
    pictures = {}
    for experiment in read_experiments():
        runs = read_runs(path_of(experiment))
        if runs:
            several_sizes = len({run.labels for run in runs}) > 1
            draw = plots.curves if several_sizes else plots.strips
            pictures[f"{PLOTS}/{experiment}.svg"] = draw_plot(draw, experiment, group(runs))
        if points := read_points(experiment):
            picture = draw_plot(plots.learning_curves, experiment, group(points, "step"))
            pictures[f"{PLOTS}/{experiment}_steps.svg"] = picture
    return pictures


def draw_plot(draw, experiment, methods):
    values = {
        method: {place: [value_of(line) for line in lines] for place, lines in groups.items()}
        for method, groups in methods.items()
    }
    return draw(title_of(experiment).replace("`", ""), f"{measure_of(experiment)}, %", values)


# ---- program --------------------------------------------------------------------------------------------------------


def define_flags():
    flags.DEFINE_string("experiment", "", "add: an experiment of results/experiments.json, or a script.")
    flags.DEFINE_string("method", "UDA", "add: what was trained, as in the tables.")


def main(*words):
    command, *arguments = words or [""]
    expected = {"add": 1, "write": 0}
    if expected.get(command) != len(arguments):
        raise ValueError(f"{' '.join(words) or 'no command'}: expected `add RUN_DIR` or `write`.")
    {"add": add_run, "write": write}[command](*arguments)


def add_run(model_dir):
    run = read_run(model_dir, flags.FLAGS.experiment, flags.FLAGS.method)
    if run in read_runs(path_of(run.experiment)):
        print(f"{path_of(run.experiment)} has the line of {model_dir} already.")
        return
    path = add(run, model_dir)
    print(f"{path}: {describe(identify(run))}, error={run.error}")
    if path == CONTRIBUTED:
        print("To send it in, open a pull request or an issue with its last line:")
        csv.writer(sys.stdout, lineterminator="\n").writerow(run)


def write():
    os.makedirs(PLOTS, exist_ok=True)
    for path, content in (render_plots() | {document: render(document) for document in DOCUMENTS}).items():
        with files.replacing(path) as file:
            file.write(content)
    print(f"written: {', '.join(DOCUMENTS)} and {PLOTS}")


if __name__ == "__main__":
    cli.run(main, define_flags, with_words=True)
