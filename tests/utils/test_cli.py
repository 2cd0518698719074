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


def test_an_error_of_several_lines_becomes_one():
    def main():
        raise ValueError("first\nsecond")

    with pytest.raises(SystemExit, match="^error: first second$"):
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


def test_a_program_that_has_done_its_work_says_all_and_does_not_wait_for_objects_to_end():
    code = """
import atexit, time
from utils import cli, cluster

class Slow:
    def __del__(self):
        time.sleep(1000)

slow = Slow()
atexit.register(print, "registered")
cli.run(lambda: print("done"), lambda: None)
"""
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (process.returncode, process.stdout) == (0, "done\nregistered\n"), process.stderr


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
@pytest.mark.parametrize("number, exit_code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_with_one_line_and_an_exit_code_and_leave_no_process(number, exit_code, workers, tmp_path):
    (tmp_path / "pids").mkdir()
    (tmp_path / "program.py").write_text(INTERRUPTED)
    environment = {"PYTHONPATH": ROOT, "PIDS": str(tmp_path / "pids"), "WORKERS": str(workers)}
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py")],
        env=os.environ | environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: len(os.listdir(tmp_path / "pids")) == workers)
    # Ctrl-C in a terminal goes to the program and to its processes alike, SIGTERM to the program.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == exit_code
    assert errors == "\nstopped: what is finished is kept, and the same command goes on from it.\n"
    wait_until(lambda: not any(is_running(int(name)) for name in os.listdir(tmp_path / "pids")))


STUBBORN = """
import os, signal, time
from utils import cli

def main():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    finally:  # an end that takes too long
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

cli.run(main, lambda: None)
"""


def test_a_second_signal_ends_at_once():
    process = subprocess.run([sys.executable, "-c", STUBBORN], cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert (process.returncode, process.stderr) == (143, "")


def test_handlers_of_signals_are_given_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    cli.call(lambda: None)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize("module", ["image.main", "image.preprocess", "text.main", "back_translate.translate"])
def test_ctrl_c_while_tensorflow_is_imported_ends_with_one_line(module):
    # The program tells what it has imported; a part of NumPy comes long before the whole of TensorFlow.
    command = [sys.executable, "-X", "importtime", "-m", module]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=allow_ctrl_c) as process:
        for line in process.stderr:
            if "numpy" in line:
                process.send_signal(signal.SIGINT)
                break
        errors = process.stderr.read()
    assert process.returncode == 130
    assert [line for line in errors.splitlines() if not line.startswith("import time:")] == ["", "stopped."]


def test_the_program_of_a_user_keeps_its_own_ctrl_c():
    code = "import signal, image.config; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    command, options = [sys.executable, "-c", code], {"capture_output": True, "text": True, "preexec_fn": allow_ctrl_c}
    assert subprocess.run(command, cwd=ROOT, **options).stdout == "True\n"


def allow_ctrl_c():
    """A shell lets programs that it starts in the background ignore Ctrl-C, and so all that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        cli.call(lambda: os.kill(os.getpid(), signal.SIGINT))
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


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
