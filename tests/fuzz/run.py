"""Throws damaged inputs at every reader for some time, and prints a table of what became of them.

python -m tests.fuzz.run --seconds=600
python -m tests.fuzz.run --loader=csv --seed=4711 --cases=1       # one case again, with its whole message
"""

import collections
import contextlib
import math
import sys
import tempfile
import time

from absl import app, flags

from tests.fuzz.cases import Child

FLAGS = flags.FLAGS
flags.DEFINE_float("seconds", 60, "How long to go on; 0: until all --cases are done.")
flags.DEFINE_list("loader", [], "Names of the readers of tests/fuzz/loaders.py; default all.")
flags.DEFINE_integer("seed", 0, "The first seed; each next case has the next one.")
flags.DEFINE_integer("cases", 0, "Stop after so many cases of each reader; 0: after the given time only.")


def run_cases(names, first_seed, num_cases, seconds, folder):
    """Yields (loader, seed, Outcome), the loaders in turn, in blocks, so that each child has little to load."""
    end = time.monotonic() + (seconds or math.inf)
    with Child(folder) as child:
        for start in range(first_seed, first_seed + (num_cases or sys.maxsize), BLOCK):
            block = range(start, min(start + BLOCK, first_seed + (num_cases or sys.maxsize)))
            for name in names:
                for seed, outcome in child.run(name, block):
                    yield name, seed, outcome
                    if time.monotonic() > end:
                        return


BLOCK = 50


HEADER = ("loader", "cases", "clean errors", "accepted", "failures", "most memory", "slowest")
KINDS = ("refused", "accepted", "failed")


def format_table(outcomes):
    """A Markdown table of what became of the cases: a dict from loader to its Outcomes."""
    rows = [HEADER, ("---",) * len(HEADER)]
    rows += [format_row(name, found) for name, found in sorted(outcomes.items())]
    rows.append(format_row("all", [outcome for found in outcomes.values() for outcome in found]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def format_row(name, outcomes):
    counts = collections.Counter(outcome.kind for outcome in outcomes)
    most = max(outcome.num_bytes for outcome in outcomes) / (1 << 20)
    slowest = max(outcome.seconds for outcome in outcomes)
    numbers = [len(outcomes), *(counts[kind] for kind in KINDS)]
    return name, *(f"{number:,}" for number in numbers), f"{most:.0f} MB", f"{slowest:.2f} s"


def main(_):
    from tests.fuzz import loaders

    names = FLAGS.loader or list(loaders.LOADERS)
    unknown = set(names) - set(loaders.LOADERS)
    if unknown:
        raise app.UsageError(f"unknown loader {', '.join(unknown)}: choose from {', '.join(loaders.LOADERS)}")
    outcomes, failures, num_cases = collections.defaultdict(list), [], 0
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        for name, seed, outcome in run_cases(names, FLAGS.seed, FLAGS.cases, FLAGS.seconds, folder):
            outcomes[name].append(outcome._replace(message=""))
            num_cases += 1
            if num_cases % 1000 == 0:
                print(f"{num_cases:,} cases, {len(failures)} failures", file=sys.stderr, flush=True)
            if outcome.kind == "failed":
                failures.append((name, seed))
                print(f"\n--loader={name} --seed={seed} ({outcome.damage}):\n{outcome.message}", flush=True)
            elif FLAGS.cases == 1:
                print(f"{name} {seed} ({outcome.damage}): {outcome.kind}: {outcome.message}")
    print("\n" + format_table(outcomes))
    for name, seed in failures:
        print(f"again: python -m tests.fuzz.run --loader={name} --seed={seed} --cases=1")


if __name__ == "__main__":
    app.run(main)
