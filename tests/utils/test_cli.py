"""utils/cli.py: known errors and Ctrl-C end every program in one line."""

import os
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from utils import cli

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("sup_size=0: expected at least 1."),
        FileNotFoundError("sup_size=0: expected at least 1."),
        tf.errors.ResourceExhaustedError(None, None, "sup_size=0: expected at least 1."),
        tf.errors.NotFoundError(None, None, "sup_size=0: expected at least 1."),
    ],
)
def test_a_known_error_becomes_one_line(error):
    def main():
        raise error

    with pytest.raises(SystemExit, match=r"^error: sup_size=0: expected at least 1\.$"):
        cli.call(main)


def test_a_defect_shows_where_it_comes_from():
    with pytest.raises(ZeroDivisionError):
        cli.call(lambda: 1 / 0)


def test_main_is_called_with_parsed_flags_and_its_errors_go_to_stderr():
    code = """
from absl import flags
from utils import cli

def main():
    raise ValueError(f"steps={flags.FLAGS.steps}: too few.")

cli.run(main, lambda: flags.DEFINE_integer("steps", 1, "Steps."))
"""
    process = subprocess.run([sys.executable, "-c", code, "--steps=7"], cwd=ROOT, capture_output=True, text=True)
    assert (process.returncode, process.stdout, process.stderr) == (1, "", "error: steps=7: too few.\n")


# The jobs write their process numbers, so that the test can see them end.
INTERRUPTED = """
import os, signal, time
# A shell lets programs that it starts in the background ignore Ctrl-C, and so all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
from utils import cli, work

def job(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    time.sleep(60)

def main():
    with work.start_processes(int(os.environ["WORKERS"])) as ordered_map:
        list(ordered_map(job, [os.environ["PIDS"]] * 4))

if __name__ == "__main__":
    cli.run(main, lambda: None)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_ends_with_one_line_and_its_own_exit_code_and_leaves_no_process(workers, tmp_path):
    (tmp_path / "pids").mkdir()
    (tmp_path / "program.py").write_text(INTERRUPTED)
    environment = {"PYTHONPATH": ROOT, "PIDS": str(tmp_path / "pids"), "WORKERS": str(workers)}
    # As in a terminal, where Ctrl-C goes to the program and to its processes alike.
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py")],
        env=os.environ | environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: len(os.listdir(tmp_path / "pids")) == workers)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors == "\nstopped: what is finished is kept, and the same command goes on from it.\n"
    wait_until(lambda: not any(is_running(int(name)) for name in os.listdir(tmp_path / "pids")))


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"  # a zombie waits for its parent only
    except FileNotFoundError:
        return False
