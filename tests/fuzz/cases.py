"""Cases in child processes: one child runs many, and is replaced after a crash, a hang or too much memory.

    with Child(folder) as child:
        for seed, outcome in child.run("csv", seeds=range(50)):
            ...

`python -m tests.fuzz.cases FOLDER MODULE` is the child. It reads lines "loader seed" and answers each with a line of
JSON. The module has a dict LOADERS, and one SEEDS of inputs that once broke something. Cases are asked for in advance,
and their files are in memory where that can be had: most take a millisecond, which waiting would multiply.
"""

import contextlib
import fnmatch
import importlib
import json
import os
import queue
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.fuzz import mutations

ROOT = Path(__file__).parent.parent.parent
MAX_SECONDS = 60  # of a case, on a machine that has other work; most take milliseconds
MAX_START_SECONDS = 600  # to import TensorFlow and to make the valid input
MAX_BYTES = 1 << 28  # by which a case may raise the memory of its process
TOOK_MEMORY = "took"
MAX_MESSAGE = 2000  # characters
MAX_MAPPED_BYTES = 1 << 31  # likewise, of memory that is asked for and not used
ASKED_IN_ADVANCE = 50
MEMORY_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Loader(NamedTuple):
    make: Callable  # folder, a Path → writes an input
    read: Callable  # folder → result
    check: Callable  # result → raises AssertionError if something is wrong with it
    damaged: str = "*"  # names of the files, below the folder, that are damaged
    cases: int = 150  # in the tests: fewer of what takes long


class Outcome(NamedTuple):
    kind: str  # "accepted", "refused" or "failed"
    message: str
    damage: str = ""
    seconds: float = 0.0  # of the processor: the machine may have other work
    num_bytes: int = 0  # by which the memory grew at most


# ---- in the test process --------------------------------------------------------------------------------------------


class Child:
    """Runs cases in another process."""

    def __init__(self, folder, module="tests.fuzz.seeds"):
        self.folder, self.module, self.process = str(folder), module, None
        self.log = os.path.join(folder, "child.log")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def run(self, loader, seeds):
        """Runs cases. Yields (seed, Outcome); a seed is a number, or the name of a kept seed."""
        seeds = list(seeds)
        while seeds:
            self._make(loader)
            block = seeds[:ASKED_IN_ADVANCE]
            self._ask(*(f"{loader} {seed}" for seed in block))
            try:
                while block and self.process is not None:  # which is replaced after some failures
                    outcome = self._answer(MAX_SECONDS)
                    yield seeds.pop(0), outcome
                    block.pop(0)
            finally:
                if block:  # the caller wants no more, but answers will come
                    self.stop()

    def _make(self, loader):
        if self.process is None:
            self.start()
        self._ask(f"make {loader}")
        made = self._answer(MAX_START_SECONDS)
        if made.kind != "accepted":
            raise RuntimeError(f"{loader}: the valid input could not be made or read: {made.message}")

    def start(self):
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONFAULTHANDLER": "1"}
        environment["UDA_CACHE"] = os.path.join(self.folder, "cache")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.cases", self.folder, self.module],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.answers = queue.SimpleQueue()
        self.thread = threading.Thread(target=pass_on, args=(self.process.stdout, self.answers))
        self.thread.start()

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(BrokenPipeError):  # what was asked for and not read
                self.process.stdin.close()
            self.thread.join()
            self.process = None

    def _ask(self, *lines):
        with contextlib.suppress(BrokenPipeError):  # it is gone, which its answer will tell
            self.process.stdin.write("".join(f"{line}\n" for line in lines))
            self.process.stdin.flush()

    def _answer(self, max_seconds):
        try:
            answer = self.answers.get(timeout=max_seconds)
        except queue.Empty:
            return self._fail(f"no answer within {max_seconds} seconds")
        if not answer:
            return self._fail(f"the process ended with {self.process.wait()}")
        outcome = Outcome(**json.loads(answer))
        if outcome.message.startswith(TOOK_MEMORY):
            self.stop()  # it may keep the memory
        return outcome

    def _fail(self, what):
        self.stop()
        return Outcome("failed", f"{what}; {Path(self.log).read_text(errors='replace')[-1500:]}")


def pass_on(lines, answers):
    """Puts each line into a queue, which can be waited for with a limit, and "" at the end."""
    with lines:
        for line in lines:
            answers.put(line)
    answers.put("")


# ---- in the child ---------------------------------------------------------------------------------------------------


def serve(folder, module):
    """Answers on what was standard output; what readers print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module = importlib.import_module(module)  # after that, since TensorFlow prints
    for line in sys.stdin:
        first, second = line.split()
        if first == "make":
            outcome = make(module.LOADERS[second], folder / second)
        else:
            seed = int(second) if second.isdecimal() else module.SEEDS[first][second]
            outcome = run_case(module.LOADERS[first], folder / first, seed)
        answers.write(json.dumps(outcome._asdict()) + "\n")
        answers.flush()


def make(loader, folder):
    """Makes the valid input, once for all children, and reads it, so that what readers load is in memory."""
    if not folder.exists():
        temporary = Path(tempfile.mkdtemp(dir=folder.parent))
        loader.make(temporary)
        temporary.rename(folder)
    if folder not in WARM:
        with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER) as copy:
            copy = Path(shutil.copytree(folder, Path(copy) / "input", symlinks=True))
            loader.check(loader.read(copy))
        WARM.add(folder)
    return Outcome("accepted", "")


WARM = set()


def files_of(loader, folder):
    """The files that may be damaged."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in paths if fnmatch.fnmatch(str(path.relative_to(folder)), loader.damaged)]


def run_case(loader, folder, seed):
    """Args:
    folder: the valid input; its name, the loader's, is part of the seed.
    seed: a number, or a function that does the damage.
    """
    with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER) as parent:
        copy = Path(shutil.copytree(folder, Path(parent) / "input", symlinks=True))
        if isinstance(seed, int):
            damage = mutations.mutate(files_of(loader, copy), np.random.default_rng([seed, *folder.name.encode()]))
        else:
            seed(copy)
            damage = seed.__name__
        before, started = start_measuring(), time.process_time()
        try:
            kind, message = judge(loader, copy)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        seconds, more = time.process_time() - started, max(memory("VmHWM") - before, 0)
        if more > MAX_BYTES:
            kind, message = "failed", f"{TOOK_MEMORY} {more >> 20} MB of memory, then: {kind}: {message}"
        return Outcome(kind, message, damage, seconds, more)


def judge(loader, folder):
    """Reads an input. Returns the kind of the outcome and a message."""
    from utils import cli

    try:
        result = loader.read(folder)
    except cli.known_errors() as error:
        return judge_error(error)
    except (Exception, SystemExit) as error:
        return "failed", describe(error)
    try:
        loader.check(result)
    except cli.known_errors() as error:  # some readers read when they are asked for something
        return judge_error(error)
    except Exception as error:
        return "failed", f"accepted, but {describe(error)}"
    return "accepted", ""


def judge_error(error):
    message, cause = " ".join(str(error).splitlines()), error  # as utils/cli.py prints it
    while cause is not None:
        if isinstance(cause, MemoryError):
            return "failed", f"asked for more memory than there may be: {message}"
        cause = cause.__cause__
    if not message.strip() or len(message) > MAX_MESSAGE:
        return "failed", f"no line that tells: {type(error).__name__}: {message[:MAX_MESSAGE]}"
    return "refused", f"{type(error).__name__}: {message}"


def describe(error):
    lines = traceback.format_exception(error)
    return "".join(lines)[-3000:]


def start_measuring():
    """Bounds the memory that may be mapped, and returns what is resident now."""
    limit = memory("VmData") + MAX_MAPPED_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # forgets the peak so far
    return memory("VmRSS")


def memory(field):
    """A field of /proc/self/status in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(f"{field}:"))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
