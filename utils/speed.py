"""How fast a run is, and how long its steps wait for their input: from one line of metrics to the next."""

import os
import time

import tensorflow as tf

from utils import cluster, files

NAME = "interrupted.json"  # in model_dir: what had been measured when a signal ended the run between two lines
FIELDS = {"step": int, "first_step": int, "seconds": float, "wait_seconds": float, "metrics": dict}


class TimedIterator:
    """An iterator over batches that measures, also within a tf.function, for how long it lets wait for them."""

    def __init__(self, batches):
        self.iterator = iter(batches)
        with tf.device("cpu:0"):
            self.wait_seconds = tf.Variable(0.0, trainable=False, dtype=tf.float64)

    def __next__(self):
        asked = tf.timestamp()
        with tf.control_dependencies([asked]):
            batch = next(self.iterator)
        with tf.device("cpu:0"), tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
            counted = self.wait_seconds.assign_add(tf.timestamp() - asked)

        def after_counting(tensor):
            with tf.device(tensor.device):
                return tf.identity(tensor)

        # The step begins after that: on a single thread it would come first, and count as waiting.
        with tf.control_dependencies([counted]):
            return tf.nest.map_structure(after_counting, batch, expand_composites=True)


class Interval:
    """What is measured between two lines of metrics, of a run that may have been stopped between them."""

    def __init__(self, model_dir, model, batches, step):
        """Args: batches: the TimedIterator of the run; step: the number of steps made."""
        self.model_dir, self.model, self.batches = model_dir, model, batches
        self.start(step)
        path = os.path.join(cluster.folder_to_read(model_dir), NAME)
        if tf.io.gfile.exists(path):
            values = files.check_fields(path, files.read_json(path), FIELDS, advice="delete it.")
            if values["step"] == step:  # otherwise the run went on without it
                self._restore(path, values)

    def start(self, step):
        self.first_step, self.started = step, time.time()
        self.batches.wait_seconds.assign(0.0)

    def take(self, step, examples_per_step):
        """The measures of the steps since the last call."""
        seconds, num_workers = max(time.time() - self.started, 1e-6), len(cluster.current_task().addresses)
        speed = (step - self.first_step) * examples_per_step / seconds
        per_worker = {"examples_per_second_per_worker": speed / num_workers} if num_workers > 1 else {}
        # All wait for the one that waits longest.
        waits = cluster.gather(self.model.distribute_strategy, [int(1e6 * self.wait_seconds())])
        ratio = min(max(wait for (wait,) in waits) / 1e6 / seconds, 1.0)
        return {"examples_per_second": speed, **per_worker, "input_wait_ratio": ratio}

    def wait_seconds(self):
        return float(self.batches.wait_seconds.numpy())

    def save(self, step):
        """Keeps what was measured so far, so that the next line is the one of a run that was not stopped."""
        states = {name: self._read(metric) for name, metric in self.model.train_metrics.items()}
        values = {"step": step, "first_step": self.first_step, "seconds": time.time() - self.started}
        values |= {"wait_seconds": self.wait_seconds(), "metrics": states}
        with files.explain_refusal(f"step={step}: {NAME} in {self.model_dir}", "make room."):
            files.write_json(os.path.join(self.model_dir, NAME), values)

    @staticmethod
    def _read(metric):
        return [tf.convert_to_tensor(weight).numpy().tolist() for weight in metric.weights]

    def _restore(self, path, values):
        self.first_step, self.started = values["first_step"], time.time() - values["seconds"]
        self.batches.wait_seconds.assign(values["wait_seconds"])
        try:
            for name, metric in self.model.train_metrics.items():
                for weight, state in zip(metric.weights, values["metrics"][name], strict=True):
                    weight.assign(state)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged ({error!r}): delete it; one line of metrics will be less.") from error
