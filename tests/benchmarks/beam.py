"""Speed of image preprocessing on Beam's direct runner with two processes, against --workers=2.

python -m tests.benchmarks.beam [--num_copies=10] [--num_rounds=3]

Both ways take turns. Counted is from the first wave of shards to the last shard, as in tests/benchmarks/preprocess.py,
and, beside it, the whole call, with the start of the processes in it.
"""

import argparse
import time

import numpy as np

from tests.benchmarks.preprocess import write_copies

TWO_PROCESSES = "--direct_num_workers=2 --direct_running_mode=multi_processing"
RUNNERS = {"local": {}, "beam": {"runner": "beam", "beam_args": TWO_PROCESSES}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_copies", type=int, default=10)
    parser.add_argument("--num_rounds", type=int, default=3)
    arguments = parser.parse_args()
    speeds, calls = ({name: [] for name in RUNNERS} for _ in range(2))
    for _ in range(arguments.num_rounds):
        for name, options in RUNNERS.items():
            started = time.perf_counter()
            speeds[name].append(write_copies("", arguments.num_copies, 2, **options)[0])
            calls[name].append(time.perf_counter() - started)
    for name in RUNNERS:
        print(f"{name:5} {np.median(speeds[name]):8,.0f} images/s, the whole call {np.median(calls[name]):6.1f} s")
    ratios = [beam / local for beam, local in zip(speeds["beam"], speeds["local"])]
    print(
        f"beam against local, without the start: {np.median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f})"
    )
    print(f"with it: {np.median(calls['local']) / np.median(calls['beam']):.2f}")


if __name__ == "__main__":
    main()
