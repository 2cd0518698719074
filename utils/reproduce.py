"""Runs the experiments of results/experiments.json again, and compares them with the runs in results/.

    python -m utils.reproduce --list
    python -m utils.reproduce --only=digits,film

What is finished is kept in runs/small and not run again; a run that was stopped goes on. What the runs say is in
runs/small/log.txt.
"""

import os
import re
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

from absl import flags

from utils import cli, results

FLAGS = flags.FLAGS
OUTPUT = "runs/small"
LOG = f"{OUTPUT}/log.txt"


class Plan(NamedTuple):
    """One run."""

    experiment: str
    method: str
    labels: int
    draw: int
    run_dir: str
    prepare: tuple  # commands
    train: str
    minutes: float

    @property
    def is_finished(self):
        return os.path.exists(f"{self.run_dir}/result.json")


def define_flags():
    flags.DEFINE_list("only", [], "Names of the experiments; all that can be run by default.")
    flags.DEFINE_list("draws", [], "Numbers of the draws, from 0; all by default.")
    flags.DEFINE_bool("list", False, "Only tell what there is, what is finished, and how long the rest takes.")
    flags.DEFINE_bool("add", False, "Add finished runs to results/, where there is no line of them yet.")


def main():
    experiments = choose(FLAGS.only)
    plans = [plan for name in experiments for plan in plan_runs(name, map(int, FLAGS.draws) if FLAGS.draws else None)]
    print_list(plans)
    if FLAGS.list:
        return
    run_all([plan for plan in plans if not plan.is_finished])
    if FLAGS.add:
        add_new(plans)
    if not compare(plans):
        raise ValueError("some means differ by more than the tolerance of their experiment, as told above.")


# ---- what to run ----------------------------------------------------------------------------------------------------


def choose(names):
    """The experiments to run, without those whose data are missing, unless they are asked for by name."""
    experiments = results.read_experiments()
    unknown = [name for name in names if name not in experiments]
    if unknown:
        raise ValueError(f"only={','.join(unknown)}: expected names of {', '.join(experiments)}.")
    chosen = []
    for name in names or experiments:
        missing = [path for path in experiments[name].get("needs", []) if not os.path.exists(path)]
        if missing and names:
            raise ValueError(f"only={name}: {', '.join(missing)} does not exist: see docs/results.md for these data.")
        if missing:
            print(f"left out: {name}, which needs {', '.join(missing)}")
        else:
            chosen.append(name)
    return chosen


def plan_runs(experiment, draws=None):
    """All runs of an experiment, draw after draw."""
    entry = results.read_experiments()[experiment]
    draws = list(draws) if draws is not None else range(entry["draws"])
    return [
        plan_run(experiment, entry, method, labels, draw)
        for draw in draws
        for labels in entry["labels"]
        for method in entry["methods"]
    ]


def plan_run(experiment, entry, method, labels, draw):
    values = {"labels": labels, "draw": draw}
    flags_of_method = entry["methods"][method].format(**values)
    # Experiments that are like one another share the runs of equal flags.
    name = re.sub(r"[^\w.+=,-]+", ",", flags_of_method.replace("--", "")) or "default"
    run_dir = f"{OUTPUT}/{entry.get('like', experiment)}/{name}_{labels}_{draw}"
    values |= {"run_dir": run_dir, "flags": flags_of_method}
    commands = tuple(command.format(**values) for command in entry["prepare"])
    return Plan(experiment, method, labels, draw, run_dir, commands, entry["train"].format(**values), entry["minutes"])


def remaining(plans):
    """The plans that are not finished, those of one folder once."""
    return {plan.run_dir: plan for plan in plans if not plan.is_finished}.values()


def print_list(plans):
    print(f"{'experiment':24} {'finished':>10} {'minutes left, about':>22}")
    for name in dict.fromkeys(plan.experiment for plan in plans):
        own = [plan for plan in plans if plan.experiment == name]
        left = sum(plan.minutes for plan in remaining(own))
        print(f"{name:24} {sum(plan.is_finished for plan in own):>5} of {len(own):<3} {left:>20.0f}")
    in_all = sum(plan.minutes for plan in remaining(plans))
    print(f"in all {in_all:.0f} minutes on two idle cores; what experiments share is counted once", flush=True)


# ---- running --------------------------------------------------------------------------------------------------------


def run_all(plans):
    """Runs what is not finished, and tells after each run how long the rest may take."""
    prepared, started, planned = set(), time.time(), 0.0
    left = list(remaining(plans))
    for number, plan in enumerate(left):
        print(f"=== {plan.experiment}: {plan.method}, {plan.labels} labels, draw {plan.draw}", flush=True)
        for command in plan.prepare:
            if command not in prepared:
                call(command)
                prepared.add(command)
        call(plan.train)
        if not plan.is_finished:
            raise ValueError(f"{plan.train}: ended without {plan.run_dir}/result.json.")
        planned += plan.minutes
        spent = (time.time() - started) / 60
        rest = sum(other.minutes for other in left[number + 1 :]) * spent / planned
        print(f"{number + 1} of {len(left)} runs in {spent:.1f} minutes, about {rest:.0f} left", flush=True)


def call(command):
    """Runs a command as a shell would; what it says goes to LOG, and is shown if it fails."""
    os.makedirs(OUTPUT, exist_ok=True)
    with open(LOG, "a+", encoding="utf-8", errors="replace") as log:
        start = log.tell()
        code = subprocess.run(["bash", "-c", command], stdout=log, stderr=subprocess.STDOUT).returncode
        log.seek(start)
        said = log.read()[-3000:] if code else ""
    if code < 0 or code > 128:  # stopped by a signal, as this program is
        raise KeyboardInterrupt
    if code:
        print(said, file=sys.stderr)
        raise ValueError(f"{command}: ended with {code}; the same command goes on from what is finished.")


# ---- comparing ------------------------------------------------------------------------------------------------------


def read_finished(plans):
    """The lines of finished runs, with the command of the plan."""
    return [
        results.read_run(plan.run_dir, plan.experiment, plan.method)._replace(command=plan.train)
        for plan in plans
        if plan.is_finished
    ]


def add_new(plans):
    for run in read_finished(plans):
        if results.identify(run) not in map(results.identify, results.read_runs(results.path_of(run.experiment))):
            print(f"added to {results.add(run)}: {results.describe(results.identify(run))}")


def compare(plans):
    """Prints the means of each method beside those in results/, over the runs that both have; True if all fit."""
    finished, fits = read_finished(plans), True
    print(f"{'experiment':24} {'method':30} {'labels':>6} {'runs':>4} {'then':>8} {'now':>8}  to the digit")
    for name in dict.fromkeys(run.experiment for run in finished):
        stored = {results.identify(run): run for run in results.read_runs(results.path_of(name))}
        pairs = [(stored[results.identify(run)], run) for run in finished if results.identify(run) in stored]
        tolerance = results.read_experiments()[name]["tolerance"]
        for method, labels in dict.fromkeys((run.method, run.labels) for _, run in pairs if run.experiment == name):
            own = [(then, now) for then, now in pairs if (now.method, now.labels) == (method, labels)]
            fits &= compare_means(name, method, labels, own, tolerance)
    return fits


def compare_means(name, method, labels, pairs, tolerance):
    then, now = (statistics.fmean(run.error for run in runs) for runs in zip(*pairs))
    equal = sum(round(before.error, 4) == round(after.error, 4) for before, after in pairs)
    verdict = "" if abs(then - now) <= tolerance else f"  more than {100 * tolerance:g} points apart"
    print(
        f"{name:24} {method:30} {labels:>6} {len(pairs):>4} {then:>8.2%} {now:>8.2%}  {equal} of {len(pairs)}{verdict}"
    )
    return not verdict


if __name__ == "__main__":
    cli.run(main, define_flags)
