"""Kills programs at random moments, gives the same command again until it ends by itself, and compares what it leaves
with what an undisturbed run leaves.

python -m tests.kills --kills=50
python -m tests.kills --program=image.main --kills=5 --seed=3

What ends by itself is a course; each kill is a SIGKILL to the process and all that it started. The processes are forked
from this one, which has imported TensorFlow and done nothing with it: so no kill is wasted on the import. Moments are
drawn from the whole time of an undisturbed run, in seconds of the processor, since the machine may have other work.
"""

import utils  # noqa: F401, I001  prepares TensorFlow
import argparse
import hashlib
import importlib
import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tests.back_translate import small_translation
from tests.image import small_data as small_images
from tests.text import small_data, small_run
from utils import cli

ROOT = Path(__file__).parent.parent
STEPS = {"train_steps": 24, "save_steps": 3, "log_steps": 3, "eval_steps": 12, "max_save": 3, "eval_batch_size": 256}


class Program(NamedTuple):
    flags: Callable  # (inputs, output), folders → dict
    make_inputs: Callable = lambda inputs: None


# ---- the programs ---------------------------------------------------------------------------------------------------

DIGITS = {"task_name": "digits", "sup_size": 20, "dev_size": 30, "aug_copy": 3}
TEXTS = {"task_name": "csv", "sup_size": 8, "dev_size": 16, "aug_ops": "unif-0.3", "max_seq_length": 32}


def image_preprocess(_, output):
    return DIGITS | {"aug_copy": 40, "output_dir": output / "records", "workers": 1}


def make_image_inputs(inputs):
    small_images.run_preprocess("", inputs / "images", **DIGITS)
    np.save(inputs / "new.npy", small_images.colored_images(20))  # as large as the records of the digits


def image_main(inputs, output):
    run = {"data_dir": inputs / "images", "model_dir": output, "do_train": True, "do_eval": True, "do_predict": True}
    return DIGITS | small_images.TINY_RUN | STEPS | run | {"predict_input": inputs / "new.npy"}


def make_texts(inputs):
    small_run.write_bert(inputs / "bert")
    for name, number in (("train", 400), ("test", 40)):
        rng = np.random.default_rng(number)
        texts = [small_data.random_text(rng, row % 2, rng.integers(4, 31)) for row in range(number)]
        rows = [{"text": text, "label": ("bad", "good")[row % 2]} for row, text in enumerate(texts)]
        small_data.write_records(inputs / f"{name}.csv", rows)


def text_preprocess(inputs, output):
    paths = {f"{name}_file": inputs / f"{name}.csv" for name in ("train", "test")}
    paths |= {"init_checkpoint": inputs / "bert", "output_dir": output / "records", "workers": 1}
    return TEXTS | paths | {"aug_copy": 40}


def make_text_inputs(inputs):
    make_texts(inputs)
    settings = text_preprocess(inputs, inputs) | {"aug_copy": 1}
    small_run.run_preprocess(settings.pop("init_checkpoint"), settings.pop("output_dir"), **settings)


def text_main(inputs, output):
    run = {"data_dir": inputs / "records", "model_dir": output, "do_train": True, "do_eval": True, "do_predict": True}
    run |= {"init_checkpoint": inputs / "bert", "predict_input": inputs / "test.csv", "ema_decay": 0.9}
    return small_run.TINY_RUN | TEXTS | STEPS | run


def make_translation(inputs):
    (inputs / "model").mkdir()
    small_translation.write_model(inputs / "model")
    rng = np.random.default_rng(0)
    sentences = [small_data.random_text(rng, 0, rng.integers(3, 15)) for _ in range(200)]
    (inputs / "sentences.txt").write_text("".join(f"{sentence}\n" for sentence in sentences))


def translation(inputs, output):
    paths = {"input_file": inputs / "sentences.txt", "output_file": output / "out.txt", "model": inputs / "model"}
    return paths | {"block_size": 5, "sampling_temp": 0.8, "seed": 1}


PROGRAMS = {
    "image.preprocess": Program(image_preprocess),
    "text.preprocess": Program(text_preprocess, make_texts),
    "image.main": Program(image_main, make_image_inputs),
    "text.main": Program(text_main, make_text_inputs),
    "back_translate.translate": Program(translation, make_translation),
}


# ---- what a run leaves ----------------------------------------------------------------------------------------------

VOLATILE = {"examples_per_second", "input_wait_ratio", "train_seconds", "versions"}  # times; and the commit
# How often the checkpoints of a process were saved; and a description of objects, which their names tell as well.
NOT_WEIGHTS = ("save_counter/.ATTRIBUTES/VARIABLE_VALUE", "_CHECKPOINTABLE_OBJECT_GRAPH")
# Graphs, whose functions TensorFlow numbers as it likes, and their checksums; pages and commands, which name folders
# and speeds; what TensorBoard shows, once for each process.
NOT_COMPARED = ("saved_model.pb", "fingerprint.pb", "saved_model.json", "report.html", "run.json")
NEW_EACH_TIME = "events.out.*"


def read_outcome(folder):
    """All that a program has left, as a dict from the name of a file, or of a part of it, to something comparable."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if not path.match(NEW_EACH_TIME):
            name, content = str(path.relative_to(folder)), read_content(path)
            found |= {f"{name}: {part}": value for part, value in content.items()} | {name: "is there"}
    return found


def read_content(path):
    """dict from the name of a part of a file to its value."""
    if path.name.endswith(".index"):
        return read_checkpoint(str(path).removesuffix(".index"))
    if path.is_dir() or path.name in NOT_COMPARED or ".data-" in path.name:  # whose content is that of the index
        return {}
    if path.name == "checkpoint":
        return {"paths": re.findall(r'(\w+): "(.*)"', path.read_text())}
    if path.name.endswith(".jsonl"):
        return {
            f"line {n}": drop_volatile(json.loads(line))
            for n, line in enumerate(path.read_text().splitlines(), start=1)
        }
    if path.name.endswith(".json"):
        return drop_volatile(json.loads(path.read_text()))
    return {"content": hashlib.sha256(path.read_bytes()).hexdigest()}


def drop_volatile(values):
    return {name: json.dumps(value) for name, value in values.items() if name not in VOLATILE}


def read_checkpoint(prefix):
    reader = tf.train.load_checkpoint(prefix)
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if name not in NOT_WEIGHTS}
    return {name: (str(value.dtype), value.shape, value.tobytes()) for name, value in tensors.items()}


def find_differences(expected, found):
    """Names of what is not the same in two outcomes."""
    return [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]


# ---- processes ------------------------------------------------------------------------------------------------------


def fork(function, log):
    """Calls a function without arguments in a new process, the first of a group of its own; returns its number."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        with_group(process)
        return process
    code = 1
    try:
        with_group(0)
        for descriptor in (1, 2):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), descriptor)
        function()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code and not isinstance(stop.code, int):
            print(stop.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def with_group(process):
    """Both do this, since nobody knows who comes first."""
    try:
        os.setpgid(process, process)
    except (PermissionError, ProcessLookupError):  # it has done so and ended
        pass


def wait(process, log, moment=float("inf")):
    """Waits for the end of a process, and kills it after some seconds of the processor.

    Returns:
      Whether it was killed, and the seconds of the processor that it had.
    """
    clock, seconds = (~process << 3) | 2, 0.0  # as clock_getcpuclockid(3) computes it
    try:
        while seconds < moment and not has_ended(process):
            time.sleep(0.002)
            seconds = time.clock_gettime(clock)
    finally:  # also if this process is told to end
        if not has_ended(process):
            os.killpg(process, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    killed = code == -signal.SIGKILL and seconds >= moment
    if code and not killed:
        raise RuntimeError(f"it ended with {code}: {Path(log).read_text()[-2000:]}")
    return killed, seconds


def has_ended(process):
    """It stays there, as a zombie, with its clock."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def call(function, *arguments):
    """What a function returns, called in a process of its own, so that this one never starts TensorFlow."""
    with tempfile.TemporaryDirectory() as folder:
        result, log = Path(folder) / "result", Path(folder) / "log"
        wait(fork(lambda: result.write_bytes(pickle.dumps(function(*arguments))), log), log)
        return pickle.loads(result.read_bytes())  # noqa: S301  our own


def run_program(name, flags):
    """Does what `python -m name flags` does."""
    sys.argv = [name, *format_flags(flags)]
    module = importlib.import_module(name)
    cli.run(module.main, module.define_flags)


def format_flags(flags):
    return [f"--{flag}={value}" for flag, value in flags.items()]


# ---- courses --------------------------------------------------------------------------------------------------------


class Series:
    """Courses of one program."""

    def __init__(self, name, folder, seed):
        self.name, self.folder, self.rng = name, folder / name, random.Random(f"{seed} {name}")
        self.inputs = self.folder / "inputs"
        self.inputs.mkdir(parents=True)
        call(PROGRAMS[name].make_inputs, self.inputs)
        self.expected = self.run_command()
        _, self.seconds, differences = self.run_course("rehearsal", 0)
        if differences:
            raise RuntimeError(f"{name}: two undisturbed runs differ in {differences}")

    def run_command(self):
        """The command as a user gives it, in a new Python. Returns its outcome."""
        output = self.folder / "undisturbed"
        command = [sys.executable, "-m", self.name, *format_flags(PROGRAMS[self.name].flags(self.inputs, output))]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise RuntimeError(f"{self.name} ended with {done.returncode}: {done.stdout[-2000:]}")
        return call(read_outcome, output)

    def run_course(self, course, most_kills):
        """Returns the number of kills, the processor's seconds of the last process, and the names of differences."""
        output, log, kills = self.folder / course, self.folder / f"{course}.log", 0
        flags = PROGRAMS[self.name].flags(self.inputs, output)
        while True:
            moment = self.rng.uniform(0, self.seconds) if kills < most_kills else float("inf")
            killed, seconds = wait(fork(lambda: run_program(self.name, flags), log), log, moment)
            if not killed:
                break
            kills += 1
        return kills, seconds, find_differences(self.expected, call(read_outcome, output))


def run_series(name, folder, seed, num_kills):
    """Returns a row of the table. What is unequal is told at once, and kept."""
    series, kills, equal, courses = Series(name, folder, seed), 0, 0, 0
    print(f"{name}: an undisturbed run takes {series.seconds:.1f} s of the processor", flush=True)
    while kills < num_kills:
        course, courses = f"course-{courses}", courses + 1
        kills_of_course, _, differences = series.run_course(course, num_kills - kills)
        kills += kills_of_course
        equal += not differences
        print(f"{name}: {course}, {kills_of_course} kills, {kills} in all, {len(differences)} differences", flush=True)
        if differences:
            print(f"  {series.folder / course}: {', '.join(differences[:20])}", flush=True)
        else:
            shutil.rmtree(series.folder / course)
    return name, kills, courses, equal


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=",".join(PROGRAMS), help="some of them, joined by commas")
    parser.add_argument("--kills", type=int, default=50, help="of each program")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that what was started ends, too
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    for name in PROGRAMS:
        importlib.import_module(name)  # here, so that its processes need not
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "UDA_CACHE": str(folder / "cache")}
    rows = [run_series(name, folder, arguments.seed, arguments.kills) for name in arguments.program.split(",")]
    print("\n| program | kills | courses | equal |\n|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")
    if any(courses != equal for *_, courses, equal in rows):
        raise SystemExit(f"courses that are not equal are kept in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
