"""Runs the experiments of results/experiments.json again, and compares them with the runs in results/.

    python -m utils.reproduce --list
    python -m utils.reproduce --only=digits,film
    python -m utils.reproduce --only=cifar10 --new --add     # what results/ does not have yet

What is finished is kept in runs/small and not run again; a run that was stopped goes on. What a run says is in the .log
beside its folder, and what prepared it in runs/small/prepare.log.
"""

import hashlib
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

from absl import flags

from utils import cli, results

FLAGS = flags.FLAGS
OUTPUT = "runs/small"
PREPARE_LOG = f"{OUTPUT}/prepare.log"
# Codes of a command that somebody stopped: its own, and those of a shell around it. Other signals are failures.
STOPPED = (-signal.SIGINT, -signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGTERM)


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
    flags.DEFINE_integer("jobs", 1, "Runs at once, each on its share of the cores.", lower_bound=1)
    flags.DEFINE_bool("list", False, "Only tell what there is, what is finished, and how long the rest takes.")
    flags.DEFINE_bool("new", False, "Leave out the runs that results/ has a line of.")
    flags.DEFINE_bool("add", False, "Add finished runs to results/, where there is no line of them yet.")


def main():
    experiments = choose(FLAGS.only)
    draws = parse_draws(FLAGS.draws)
    plans = [plan for name in experiments for plan in plan_runs(name, draws)]
    if FLAGS.new:
        plans = leave_out_stored(plans)
    print_list(plans)
    if FLAGS.list:
        return
    run_all(plans, FLAGS.jobs)
    fits = compare(plans)  # with what was there before
    if FLAGS.add:
        add_new(plans)
    if not fits:
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


def parse_draws(numbers):
    """--draws; None for those of each experiment."""
    wrong = [number for number in numbers if not number.isdecimal()]
    if wrong:
        raise ValueError(f"draws={','.join(wrong)}: expected numbers from 0, such as --draws=0,1,2.")
    return list(map(int, numbers)) or None


def plan_runs(experiment, draws=None):
    """All runs of an experiment, draw after draw.

    Args:
      draws: their numbers; as many as the experiment has by default, which may be others for each number of labels.
    """
    entry = results.read_experiments()[experiment]
    numbers = entry["draws"] if isinstance(entry["draws"], list) else [entry["draws"]] * len(entry["labels"])
    return [
        plan_run(experiment, entry, method, labels, draw)
        for draw in (range(max(numbers)) if draws is None else draws)
        for labels, number in zip(entry["labels"], numbers, strict=True)
        for method in entry["methods"]
        if draw < number or draws is not None
    ]


def plan_run(experiment, entry, method, labels, draw):
    values = {"labels": labels, "draw": draw}
    flags_of_method = entry["methods"][method].format(**values)
    # Experiments that are like one another share the runs of equal commands; another command, of the preparation, too,
    # has another folder.
    name = re.sub(r"[^\w.+=,-]+", ",", flags_of_method.replace("--", "")) or "default"
    digest = hashlib.sha256("\n".join([*entry["prepare"], entry["train"]]).encode()).hexdigest()[:8]
    run_dir = f"{OUTPUT}/{results.root_of(experiment)}-{digest}/{name}_{labels}_{draw}"
    values |= {"run_dir": run_dir, "flags": flags_of_method}
    commands = tuple(command.format(**values) for command in entry["prepare"])
    minutes = entry["minutes"][method] if isinstance(entry["minutes"], dict) else entry["minutes"]
    return Plan(experiment, method, labels, draw, run_dir, commands, entry["train"].format(**values), minutes)


def leave_out_stored(plans):
    """The plans of which results/ has no line."""
    paths = {plan.experiment: results.path_of(plan.experiment) for plan in plans}
    runs = [run for path in paths.values() for run in results.read_runs(path)]
    stored = {(run.experiment, run.method, run.labels, run.draw) for run in runs}
    return [plan for plan in plans if (plan.experiment, plan.method, plan.labels, plan.draw) not in stored]


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


def run_all(plans, jobs=1):
    """Runs what is not finished, `jobs` at once, and tells after each run how long the rest may take."""
    waiting, running, prepared = list(remaining(plans)), {}, set()
    number, started, planned = len(waiting), time.time(), 0.0
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                plan = waiting.pop(0)
                print(f"=== {plan.experiment}: {plan.method}, {plan.labels} labels, draw {plan.draw}", flush=True)
                prepare(plan, prepared)
                running[plan] = Command(plan.train, f"{plan.run_dir}.log", jobs)
            plan = wait_for_one(running)
            running.pop(plan).finish()
            if not plan.is_finished:
                raise ValueError(f"{plan.train}: ended without {plan.run_dir}/result.json.")
            planned += plan.minutes
            spent, left = (time.time() - started) / 60, [*waiting, *running]
            rest = sum(other.minutes for other in left) * spent / planned
            print(f"{number - len(left)} of {number} runs in {spent:.1f} minutes, about {rest:.0f} left", flush=True)
    finally:
        end_all(running.values())


def prepare(plan, prepared):
    """Runs those of the plan's commands that are not in `prepared` yet, and puts them there."""
    for command in plan.prepare:
        if command not in prepared:
            Command(command, PREPARE_LOG).finish()
            prepared.add(command)


def wait_for_one(running):
    """The first plan whose command has ended; `running` is a dict from plan to command."""
    while True:
        for plan, command in running.items():
            if command.process.poll() is not None:
                return plan
        time.sleep(0.1)


class Command:
    """A command as a shell runs it. What it says goes to the end of a file, and is shown if it fails."""

    def __init__(self, command, log_path, jobs=1):
        """Starts it, with one of `jobs` shares of the cores."""
        self.command, self.log_path = command, log_path
        os.makedirs(os.path.dirname(log_path), exist_ok=True)
        threads = {"TF_NUM_INTRAOP_THREADS": str(max(1, os.cpu_count() // jobs))} if jobs > 1 else {}
        with open(log_path, "ab") as log:
            self.start = log.tell()
            # A session of its own, so that whatever it starts can be stopped with it.
            self.process = subprocess.Popen(
                ["bash", "-c", command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=threads | os.environ,
                start_new_session=True,
            )

    def finish(self):
        """Waits for its end, and raises an error unless it was a good one."""
        try:
            code = self.process.wait()
        except KeyboardInterrupt:
            end_all([self])
            raise
        if code in STOPPED:
            raise KeyboardInterrupt
        if code:
            with open(self.log_path, "rb") as log:
                log.seek(self.start)
                print(log.read().decode(errors="replace")[-3000:], file=sys.stderr)
            raise ValueError(f"{self.command}: ended with {code}; the same command goes on from what is finished.")


def end_all(commands):
    """Asks them and what they have started to end, which leaves a training with a checkpoint, and waits for that."""
    commands = [command for command in commands if command.process.poll() is None]
    for command in commands:  # all before the first wait: a second signal ends this program at once
        os.killpg(command.process.pid, signal.SIGTERM)
    for command in commands:
        command.process.wait()


# ---- comparing ------------------------------------------------------------------------------------------------------


def read_finished(plan):
    """The line of a finished run, with the command of the plan."""
    return results.read_run(plan.run_dir, plan.experiment, plan.method)._replace(command=plan.train)


def add_new(plans):
    for plan in plans:
        if plan.is_finished:
            run = read_finished(plan)
            if results.identify(run) not in map(results.identify, results.read_runs(results.path_of(plan.experiment))):
                print(f"added to {results.add(run, plan.run_dir)}: {results.describe(results.identify(run))}")


def compare(plans):
    """Prints the means of each method beside those in results/, over the runs that both have; True if all fit."""
    finished, fits = [read_finished(plan) for plan in plans if plan.is_finished], True
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
