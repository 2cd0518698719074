"""Programs run inside the test process, and scripts run with an environment that is none."""

import contextlib
import os
import shutil
from pathlib import Path

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


def run_main(module, *arguments, words=()):
    """Does what `python -m module words arguments` does, without a new process."""
    with parsed_flags(module, *arguments):
        cli.call(module.main, *words)


def write_stub_environment(root, **programs):
    """Makes the scripts in `root` take these programs, given as their text, for the environment of every stack.

    Returns:
      The environment variables to run the scripts with.
    """
    for folder, stack in {".venv": "2.15", ".venv-2.15": "2.15", ".venv-2.20": "2.20"}.items():
        lock = Path(__file__).parent.parent / f"requirements-{stack}.lock"
        (root / folder / "bin").mkdir(parents=True)
        (root / folder / "stack").write_text(f"{stack}\n")
        for copy in (root / lock.name, root / folder / "installed.lock"):
            shutil.copy(lock, copy)
        for name, text in programs.items():
            (root / folder / "bin" / name).write_text(text)
            (root / folder / "bin" / name).chmod(0o755)
    return {name: value for name, value in os.environ.items() if name not in ("UDA_STACK", "UDA_PYTHON")}
