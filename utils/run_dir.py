"""What a run leaves in model_dir: settings, command, metrics, TensorBoard events, checkpoints, result."""

import collections
import contextlib
import dataclasses
import functools
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from utils import checkpoint_index, cluster, files, locks, settings

# Under temporary names at first.
WRITTEN = ("config.json", "data.json", "run.json", "metrics.jsonl", "best.json", "interrupted.json")
WRITTEN += ("evaluation.npz", "result.json")


def alone(train):
    """A decorator of a function (config, model_dir, …): no two runs train in one model_dir at the same time.

    Of several workers the chief has the folder, and each of the others one of its own.
    """

    @functools.wraps(train)
    def train_alone(config, model_dir, *arguments, **options):
        with cluster.explain_loss(), hold(model_dir) as own_dir:
            return train(config, own_dir, *arguments, **options)

    return train_alone


@contextlib.contextmanager
def hold(model_dir):
    """Keeps other runs from training in model_dir for the time of the block. Gives the folder to write to."""
    if not cluster.current_task().is_chief:
        with cluster.folder_to_write(model_dir) as own_dir:
            yield own_dir
        return
    with explain_refusal(model_dir):
        was_there = tf.io.gfile.exists(model_dir)
        tf.io.gfile.makedirs(model_dir)
    try:
        with locks.hold(model_dir, "another training", "wait for its end, or choose another --model_dir."):
            files.remove_leftovers(*(os.path.join(model_dir, name) for name in WRITTEN))
            yield model_dir
    finally:
        if not was_there:  # an attempt that failed on a wrong setting leaves nothing
            with contextlib.suppress(OSError):
                os.rmdir(model_dir)  # if it is empty


def explain_refusal(model_dir):
    return files.explain_refusal(f"model_dir={model_dir}", "choose another --model_dir.")


def prepare(model_dir, config, data=None):
    """Makes model_dir, or takes up the run in it; refuses one of other settings or data that left checkpoints.

    Args:
      data: {"labelled": checksum, …} of what is trained on; None leaves it unchecked.
    """
    with explain_refusal(model_dir):
        tf.io.gfile.makedirs(model_dir)
        source_dir = cluster.folder_to_read(model_dir)
        stored = read_begun(source_dir)
        lines = settings.contradictions(config, stored) if stored else []
        if lines:
            raise ValueError(
                f"model_dir={source_dir} holds a run of another configuration ({'; '.join(lines)}). "
                "Give those settings again to continue it, or choose another --model_dir."
            )
        if stored and data:
            _check_data(source_dir, data)
        files.write_json(os.path.join(model_dir, "config.json"), dataclasses.asdict(config))
        if data:
            files.write_json(os.path.join(model_dir, "data.json"), data)


def _check_data(model_dir, data):
    path = os.path.join(model_dir, "data.json")
    if not files.exists(path):  # a run from before there was such a file
        return
    before = files.check_fields(path, files.read_json(path), dict.fromkeys(data, str))
    others = [name for name, checksum in data.items() if before[name] != checksum]
    if others:
        raise ValueError(
            f"model_dir={model_dir} holds a run of the same configuration on other {' and '.join(others)} examples. "
            "Choose another --model_dir, or delete that one to train anew."
        )


def read_begun(model_dir):
    """The settings of a run that can be continued, as a dict; {} if there is none."""
    path = os.path.join(model_dir, "config.json")
    # An attempt that failed before its first checkpoint, on a wrong setting say, left nothing to be continued.
    left = [os.path.join(model_dir, name) for name in ("best", "checkpoints")]
    if tf.io.gfile.exists(path) and any(tf.io.gfile.exists(folder) for folder in left):
        return files.check_fields(path, files.read_json(path), {})
    return {}


def versions():
    """Versions that a result depends on, and the git commit of this code."""
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "numpy": np.__version__,
        "git_commit": git_commit(),
    }


def git_commit():
    """The commit of this code, with "-dirty" behind it if its files were changed since; "" without git."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

    def git(*arguments):
        return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True).stdout

    try:
        commit = git("rev-parse", "HEAD").strip()
        return commit + "-dirty" * bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):  # git is not installed, or this is no repository
        return ""


def write_start(model_dir, num_replicas):
    """Writes run.json: the command that trains, and on what."""
    hardware = describe_hardware() + (f", {num_replicas} replicas" if num_replicas > 1 else "")
    command = shlex.join(["python", *sys.orig_argv[1:]])
    with explain_refusal(model_dir):
        files.write_json(os.path.join(model_dir, "run.json"), {"command": command, "hardware": hardware})


def read_start(model_dir):
    """What write_start wrote, or {} for a run from before there was such a file."""
    path = os.path.join(model_dir, "run.json")
    if not files.exists(path):
        return {}
    return files.check_fields(path, files.read_json(path), {"command": str, "hardware": str})


def describe_hardware():
    """The devices that TensorFlow computes on, in one line."""
    accelerators = collections.Counter()
    for device in tf.config.list_physical_devices():
        if device.device_type in ("GPU", "TPU"):
            details = tf.config.experimental.get_device_details(device) if device.device_type == "GPU" else {}
            accelerators[details.get("device_name", device.device_type)] += 1
    cores = f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} CPU cores"
    devices = [f"{count} × {name}" for name, count in accelerators.items()]
    return ", ".join([*devices, f"{cores} ({_processor_name()})"])


def _processor_name():
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


class MetricsWriter:
    """Writes each line of metrics to metrics.jsonl, TensorBoard and the console, with the time left."""

    def __init__(self, model_dir, start_step, train_steps):
        """Lines later than `start_step`, from a run that was killed after its last checkpoint, are dropped."""
        self.path = os.path.join(model_dir, "metrics.jsonl")
        # A worker that is not the chief takes over what the chief has, at its start.
        source_dir = model_dir if tf.io.gfile.exists(self.path) else cluster.folder_to_read(model_dir)
        lines = [line for line in read_metrics(source_dir) if line["step"] <= start_step]
        with self._explain_refusal(start_step):
            with files.replacing(self.path) as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))
            self.summaries = tf.summary.create_file_writer(os.path.join(model_dir, "tensorboard"))
        self.start_time, self.start_step, self.train_steps = time.time(), start_step, train_steps
        self.is_shown = cluster.current_task().is_chief
        # One line, where there is a terminal; what matters most comes first, since a narrow one cuts off the rest.
        line = "step {n_fmt}/{total_fmt}{postfix}, {remaining} left, {rate_fmt} {bar}"
        options = {
            "unit": "step",
            "bar_format": line,
            "dynamic_ncols": True,
            "disable": None if self.is_shown else True,
        }
        self.bar = tqdm(total=train_steps, initial=start_step, **options)
        self.live, self.live_time = {}, 0.0

    def advance(self, step, read_live=dict):
        """Moves the line on, where there is one.

        Args:
          read_live: returns metrics as they are now, as a dict; is called twice a second at most.
        """
        if not self.bar.disable and time.time() - self.live_time > LIVE_SECONDS:
            self._show(read_live())
        self.bar.update(step - self.bar.n)

    def _show(self, metrics):
        """Puts those of the metrics into the line that have a place there; others stay as they were."""
        self.live |= {short: f"{short} {metrics[name]:.3g}" for name, short in LIVE.items() if name in metrics}
        self.live_time = time.time()
        self.bar.set_postfix_str(", ".join(self.live[short] for short in LIVE.values() if short in self.live))

    def write(self, step, metrics):
        metrics = {name: float(value) for name, value in metrics.items()}
        with self._explain_refusal(step):
            self._write_files(step, metrics)
        shown = {name: f"{value:.4g}" for name, value in metrics.items() if name in SHOWN}
        if not self.bar.disable:
            self._show(metrics)
        elif self.is_shown:
            values = "  ".join(f"{name} {value}" for name, value in shown.items())
            print(f"step {step}/{self.train_steps}  {values}  {self.time_left(step)} left", file=sys.stderr, flush=True)

    def tell(self, text):
        """Shows a text beside the lines of metrics."""
        if self.is_shown:
            self.bar.write(text, file=sys.stderr)

    def _explain_refusal(self, step):
        advice = "make room; the same command goes on from the last checkpoint."
        return files.explain_refusal(f"step={step}: {self.path}", advice)

    def _write_files(self, step, metrics):
        with tf.io.gfile.GFile(self.path, "a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")
        with self.summaries.as_default(step=step):
            for name, value in metrics.items():
                tf.summary.scalar(name, value)
        self.summaries.flush()

    def time_left(self, step):
        if step == 0:
            return "?"  # no step has been made that would tell
        seconds = (time.time() - self.start_time) / max(step - self.start_step, 1) * (self.train_steps - step)
        return tqdm.format_interval(seconds)

    def close(self):
        self.bar.close()
        self.summaries.close()


# The metrics of the live line, and how they are called there.
LIVE = {"loss": "loss", "unsup_kept_ratio": "kept", "dev_accuracy": "dev accuracy", "test_accuracy": "test accuracy"}
LIVE |= {"mlm_accuracy": "mlm accuracy", "dev_loss": "dev loss"}  # of pre-training
LIVE_SECONDS = 0.5
SHOWN = ("loss", "sup_loss", "unsup_loss", "sup_accuracy", "unsup_kept_ratio", "dev_accuracy", "test_accuracy")
SHOWN += ("test_top5_accuracy",)
SHOWN += ("mlm_accuracy", "nsp_accuracy", "dev_loss")  # of pre-training


def read_metrics(model_dir):
    """The lines of metrics.jsonl as dicts; a last line that a kill left half written is dropped."""
    path = os.path.join(model_dir, "metrics.jsonl")
    if not tf.io.gfile.exists(path):
        return []
    with files.open_file(path, "rb") as file:
        lines = file.read().split(b"\n")
    return [_parse_metrics(line, f"{path}, line {number}") for number, line in enumerate(lines[:-1], start=1)]


def _parse_metrics(line, where):
    """One line of metrics.jsonl: the step, and numbers, which may be infinite or none at all."""
    try:
        values = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not valid JSON ({error or 'nested too deeply'}): delete that line.") from error
    files.check_fields(where, values, {"step": int}, advice="delete that line.")
    for name, value in values.items():
        if type(value) not in (int, float):
            raise ValueError(f"{where}: {name}={files.shorten(value)}: expected a number; delete that line.")
    return values


class Checkpoints:
    """The last few checkpoints of a run, and the one that was best on the development split."""

    def __init__(self, model_dir, model, max_to_keep, measure="dev_accuracy", lowest_is_best=False):
        """Args:
        model: compiled, with a built optimizer, such as a utils.uda_model.UDAModel.
        measure: what save_if_best compares, for best.json.
        """
        self.model_dir = model_dir
        self.measure, self.lowest_is_best = measure, lowest_is_best
        parts = {"network": model.network, "optimizer": model.optimizer}
        if model.average_network is not None:
            parts["average_network"] = model.average_network
        self.checkpoint = tf.train.Checkpoint(**parts)
        self.manager = self._create_manager(os.path.join(model_dir, "checkpoints"), max_to_keep)
        self.best_manager = self._create_manager(os.path.join(model_dir, "best"), 1)
        self.best_path = os.path.join(model_dir, "best.json")
        self.best = self.read_best()

    def _create_manager(self, folder, max_to_keep):
        check_checkpoint_list(os.path.join(folder, "checkpoint"))
        with explain_refusal(self.model_dir):
            files.remove_unfinished(folder)
        return tf.train.CheckpointManager(self.checkpoint, folder, max_to_keep)

    def save(self, step):
        self._save(self.manager, step)

    def save_if_best(self, step, value):
        if self.best is None or (value < self.best if self.lowest_is_best else value > self.best):
            self.best = value
            self._save(self.best_manager, step)
            with self._explain_refusal(step, self.best_path):
                files.write_json(self.best_path, {"step": step, self.measure: value})

    def read_best(self):
        """The best value so far, or None."""
        path = cluster.folder_to_read(self.best_path)
        if not tf.io.gfile.exists(path):
            return None
        advice = "delete it, to choose among the checkpoints from now on."
        return files.check_fields(path, files.read_json(path), {"step": int, self.measure: float}, advice=advice)[
            self.measure
        ]

    def _save(self, manager, step):
        with self._explain_refusal(step, f"the checkpoint in {manager.directory}"):
            manager.save(checkpoint_number=step)

    def _explain_refusal(self, step, what):
        last_path = self.last_path()
        then = f"goes on from the last one, {last_path}" if last_path else "starts again"
        return files.explain_refusal(f"step={step}: {what}", f"make room; the same command {then}.")

    def last_path(self):
        """The last checkpoint whose files have not been deleted, or None."""
        paths = [path for path in self._paths(self.manager) if tf.io.gfile.exists(f"{path}.index")]
        return paths[-1] if paths else None

    def _paths(self, manager):
        """The checkpoints that were saved, by this process or, for it, by the chief."""
        source_dir = cluster.folder_to_read(manager.directory)
        if source_dir == manager.directory:
            return manager.checkpoints
        check_checkpoint_list(os.path.join(source_dir, "checkpoint"))
        state = tf.train.get_checkpoint_state(source_dir)
        return list(state.all_model_checkpoint_paths) if state else []

    def restore_last(self):
        """Takes up the last checkpoint, if there is one. Returns the number of steps made."""
        path = self.last_path()
        return self.restore(path) if path else 0

    def restore_chosen(self, by_dev):
        """Restores the best checkpoint on the development split where there is one, else the last."""
        path = next(reversed(self._paths(self.best_manager)), None) if by_dev else self.last_path()
        if not path:
            raise ValueError(f"model_dir={self.model_dir} holds no checkpoint: train first, with --do_train.")
        return self.restore(path)

    def restore(self, path):
        """Takes up a checkpoint. Returns the number of steps made."""
        try:
            checkpoint_index.check(path)
            self.checkpoint.restore(path).assert_existing_objects_matched()
        except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:  # IndexError: a file was cut off
            raise ValueError(
                f"{path} cannot be restored: it is damaged, or of another network ({files.reason_of(error)}). "
                "Delete its files to go on from the one before it, or choose another --model_dir."
            ) from error
        return int(path.rpartition("-")[2])  # as _save numbered it


# The lines of TensorFlow's list of checkpoints.
CHECKPOINT_LINE = re.compile(
    r'(model_checkpoint_path|all_model_checkpoint_paths): "((?:[^"]*/)?ckpt-\d+)"'
    r"|(all_model_checkpoint_timestamps|last_preserved_timestamp): \d[\d.e+]*"
)


def check_checkpoint_list(path):
    """Refuses a damaged list of checkpoints: TensorFlow would begin again, and write over those that are there."""
    if not tf.io.gfile.exists(path):
        return
    with files.open_file(path, "rb") as file:
        lines = file.read().decode(errors="replace").splitlines()
    matches = [CHECKPOINT_LINE.fullmatch(line) for line in lines]
    found = collections.defaultdict(list)
    for match in filter(None, matches):
        found[match[1] or match[3]].append(match[2])
    paths, times = found["all_model_checkpoint_paths"], found["all_model_checkpoint_timestamps"]
    if not paths or not all(matches) or len(paths) != len(times) or found["model_checkpoint_path"] != paths[-1:]:
        raise ValueError(
            f"{path} is damaged: expected TensorFlow's list of checkpoints. Restore it, delete its folder to train "
            "from the start, or choose another --model_dir."
        )


def take_metrics(model, step):
    """Reads the training metrics since the last call and starts them anew.

    Raises:
      ValueError: if the loss or a weight is not a finite number.
    """
    counts = {name: tf.convert_to_tensor(metric.count) for name, metric in model.train_metrics.items()}
    metrics = {name: float(metric.result()) for name, metric in model.train_metrics.items() if counts[name] > 0}
    model.reset_metrics()
    # The loss is from before the last update, which may have broken the weights.
    weights = [weight for weight in model.network.weights if weight.dtype.is_floating]
    finite = all(tf.reduce_all(tf.math.is_finite(weight)) for weight in weights)
    if not (finite and np.isfinite(metrics["loss"])):
        raise ValueError(
            f"step={step}: loss={metrics['loss']}. The training has diverged; the last checkpoint is from before. "
            "Use a lower --learning_rate or more --warmup_steps, in a new --model_dir."
        )
    return metrics
