"""Work for the tests of utils/beam.py, which workers import."""

import os
import time

from utils import records

NUM_JOBS = 12


def write_slowly(folder, number):
    """Writes shard `number` of a set, in half a second, and tells who has begun it."""
    with open(os.path.join(folder, f"begun-{number}-{os.getpid()}"), "w"):
        pass

    def examples():
        for value in range(5):
            time.sleep(0.1)
            yield b"%d" % (100 * number + value)

    records.write_shard(os.path.join(folder, "set"), number, NUM_JOBS, examples)
    return number


def square(number):
    return number * number


def refuse_seven(number):
    if number == 7:
        raise ValueError("number=7: expected another one.")
    return {number}


def union(sets):
    return set().union(*sets)
