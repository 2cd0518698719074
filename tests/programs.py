"""Programs run inside the test process."""

import contextlib

from absl import flags

from utils import cli


@contextlib.contextmanager
def parsed_flags(module, *arguments):
    """The flags of a program's `module`, which exist for the time of the block only."""
    before = set(flags.FLAGS)
    module.define_flags()
    try:
        flags.FLAGS(["program", *map(str, arguments)])
        yield flags.FLAGS
    finally:
        for name in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, name)


def run_main(module, *arguments):
    """Does what `python -m module arguments` does, without a new process."""
    with parsed_flags(module, *arguments):
        cli.call(module.main)
