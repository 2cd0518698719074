"""A program that counts, goes on from where it was when it is given again, and with --forget is wrong about where.

It is what tests/test_kills.py tries tests/kills.py on. Kept small: it does not load TensorFlow.
"""

import os

from absl import flags

from utils import cli

FLAGS = flags.FLAGS
LINES = 200


def count(path, forget):
    """Writes one line after the other."""
    with open(path, "a+") as file:
        file.seek(0)
        done = len(file.read().splitlines())
        for number in range(done + bool(done and forget), LINES):
            file.write(f"{number} {sum(range(50_000))}\n")  # some work
            file.flush()


def define_flags():
    flags.DEFINE_string("output", None, "Folder of the numbers.", required=True)
    flags.DEFINE_bool("forget", False, "Leave out a number whenever there are some already.")


def main():
    os.makedirs(FLAGS.output, exist_ok=True)
    count(os.path.join(FLAGS.output, "numbers.txt"), FLAGS.forget)


if __name__ == "__main__":
    cli.run(main, define_flags)
