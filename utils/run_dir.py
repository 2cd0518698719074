"""What a run leaves in model_dir: config.json, metrics.jsonl, TensorBoard events, checkpoints, result.json."""

import dataclasses
import json
import os
import platform
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from utils import files, settings


def prepare(model_dir, config):
    """Makes model_dir, or takes up the run that is in it; refuses a run of other settings that left checkpoints."""
    path = os.path.join(model_dir, "config.json")
    with files.explain_refusal(f"model_dir={model_dir}", "choose another --model_dir."):
        tf.io.gfile.makedirs(model_dir)
        # An attempt that failed before its first checkpoint, on a wrong setting say, left nothing to be continued.
        left = [os.path.join(model_dir, name) for name in ("best", "checkpoints")]
        if tf.io.gfile.exists(path) and any(tf.io.gfile.exists(folder) for folder in left):
            lines = settings.contradictions(config, files.read_json(path))
            if lines:
                raise ValueError(
                    f"model_dir={model_dir} holds a run of another configuration ({'; '.join(lines)}). "
                    "Give those settings again to continue it, or choose another --model_dir."
                )
        files.write_json(path, dataclasses.asdict(config))


def versions():
    """Versions that a result depends on, and the git commit of this code."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        git = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True)
        git_commit = git.stdout.strip() if git.returncode == 0 else ""
    except OSError:  # git is not installed
        git_commit = ""
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "numpy": np.__version__,
        "git_commit": git_commit,
    }


class MetricsWriter:
    """Writes each line of metrics to metrics.jsonl, TensorBoard and the console, with the time left."""

    def __init__(self, model_dir, start_step, train_steps):
        """Lines later than `start_step`, from a run that was killed after its last checkpoint, are dropped."""
        self.path = os.path.join(model_dir, "metrics.jsonl")
        lines = [line for line in read_metrics(model_dir) if line["step"] <= start_step]
        with files.replacing(self.path) as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
        self.summaries = tf.summary.create_file_writer(os.path.join(model_dir, "tensorboard"))
        self.start_time, self.start_step, self.train_steps = time.time(), start_step, train_steps
        self.bar = tqdm(total=train_steps, initial=start_step, unit="step", disable=None)  # off unless on a terminal

    def advance(self, step):
        """Moves the progress bar, where there is one."""
        self.bar.update(step - self.bar.n)

    def write(self, step, metrics):
        metrics = {name: float(value) for name, value in metrics.items()}
        advice = "make room; the same command goes on from the last checkpoint."
        with files.explain_refusal(f"step={step}: {self.path}", advice):
            self._write_files(step, metrics)
        shown = {name: f"{value:.4g}" for name, value in metrics.items() if name in SHOWN}
        if not self.bar.disable:
            self.bar.set_postfix(shown)
        else:
            values = "  ".join(f"{name} {value}" for name, value in shown.items())
            print(f"step {step}/{self.train_steps}  {values}  {self.time_left(step)} left", file=sys.stderr, flush=True)

    def _write_files(self, step, metrics):
        with tf.io.gfile.GFile(self.path, "a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")
        with self.summaries.as_default(step=step):
            for name, value in metrics.items():
                tf.summary.scalar(name, value)
        self.summaries.flush()

    def time_left(self, step):
        seconds = (time.time() - self.start_time) / max(step - self.start_step, 1) * (self.train_steps - step)
        return tqdm.format_interval(seconds)

    def close(self):
        self.bar.close()
        self.summaries.close()


SHOWN = ("loss", "sup_loss", "unsup_loss", "sup_accuracy", "unsup_kept_ratio", "dev_accuracy", "test_accuracy")
SHOWN += ("test_top5_accuracy",)
SHOWN += ("mlm_accuracy", "nsp_accuracy", "dev_loss")  # of pre-training


def read_metrics(model_dir):
    """The lines of metrics.jsonl as dicts; a last line that a kill left half written is dropped."""
    path = os.path.join(model_dir, "metrics.jsonl")
    if not tf.io.gfile.exists(path):
        return []
    with tf.io.gfile.GFile(path) as file:
        lines = file.read().split("\n")
    return [json.loads(line) for line in lines[:-1]]


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
        self.manager = tf.train.CheckpointManager(self.checkpoint, os.path.join(model_dir, "checkpoints"), max_to_keep)
        self.best_manager = tf.train.CheckpointManager(self.checkpoint, os.path.join(model_dir, "best"), 1)
        self.best_path = os.path.join(model_dir, "best.json")

    def save(self, step):
        self._save(self.manager, step)

    def save_if_best(self, step, value):
        best = files.read_json(self.best_path)[self.measure] if tf.io.gfile.exists(self.best_path) else None
        if best is None or (value < best if self.lowest_is_best else value > best):
            self._save(self.best_manager, step)
            files.write_json(self.best_path, {"step": step, self.measure: value})

    def _save(self, manager, step):
        last_path = self.last_path()
        then = f"goes on from the last one, {last_path}" if last_path else "starts again"
        what = f"step={step}: the checkpoint in {manager.directory}"
        with files.explain_refusal(what, f"make room; the same command {then}."):
            manager.save(checkpoint_number=step)

    def last_path(self):
        """The last checkpoint whose files have not been deleted, or None."""
        paths = [path for path in self.manager.checkpoints if tf.io.gfile.exists(f"{path}.index")]
        return paths[-1] if paths else None

    def restore_last(self):
        """Takes up the last checkpoint, if there is one. Returns the number of steps made."""
        path = self.last_path()
        return self._restore(path) if path else 0

    def restore_chosen(self, by_dev):
        """Restores the best checkpoint on the development split where there is one, else the last."""
        path = self.best_manager.latest_checkpoint if by_dev else self.last_path()
        if not path:
            raise ValueError(f"model_dir={self.model_dir} holds no checkpoint: train first, with --do_train.")
        return self._restore(path)

    def _restore(self, path):
        try:
            self.checkpoint.restore(path).assert_existing_objects_matched()
        except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:  # IndexError: a file was cut off
            raise ValueError(
                f"{path} cannot be restored: it is damaged, or of another network ({error}). Delete its files to go on "
                "from the one before it, or choose another --model_dir."
            ) from error
        return int(path.rpartition("-")[2])  # as _save numbered it


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
