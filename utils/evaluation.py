"""What a trained classifier says about the test set, and about some unlabelled examples: evaluation.npz of a run.

metrics, evaluation = predict(model, strategy, test, class_names, batch_size)
write("runs/mine", evaluation)
"""

import dataclasses
import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from utils import distribution, files

FILE = "evaluation.npz"
NUM_UNLABELED = 1000  # unlabelled examples that are looked at
SHUFFLE_BUFFER = 4096  # records in memory to draw them from
ADVICE = "evaluate that run again, with --do_eval."


class Evaluation(NamedTuple):
    """Rows are in the order of the test records."""

    probabilities: np.ndarray  # float32 [examples, classes]
    labels: np.ndarray  # int64 [examples]
    class_names: np.ndarray  # texts [classes]
    # Of some unlabelled examples: the largest probability on both views, the most probable class on the original.
    original_confidence: np.ndarray = np.zeros([0], np.float32)
    augmented_confidence: np.ndarray = np.zeros([0], np.float32)
    pseudo_labels: np.ndarray = np.zeros([0], np.int64)

    @property
    def predictions(self):
        return self.probabilities.argmax(axis=1)

    @property
    def confidence(self):
        return self.probabilities.max(axis=1)

    @property
    def correct(self):
        return self.predictions == self.labels


# ---- predicting -----------------------------------------------------------------------------------------------------


def predict(model, strategy, part, class_names, batch_size):
    """One pass over a labelled set.

    Args:
      part: utils.training.EvaluationSet, whose batches have `batch_size` examples. Where they do not come in the order
        of the records they have "row", the number of each example's record.

    Returns:
      accuracy (of more than five classes also top5_accuracy) and loss as a dict, and the Evaluation.
    """
    outputs = _predict(model, strategy, part.create_batches, -(-part.num_examples // batch_size), batch_size)
    rows = np.flatnonzero(outputs["weight"] > 0)
    log_probs, labels = outputs["sup"][rows], outputs["label"][rows].astype(np.int64)
    evaluation = Evaluation(np.exp(log_probs), labels, np.array([str(name) for name in class_names]))
    return measure(evaluation, log_probs), evaluation


def measure(evaluation, log_probs):
    true_class = np.take_along_axis(log_probs, evaluation.labels[:, np.newaxis], axis=1)
    metrics = {"loss": -float(true_class.mean(dtype=np.float64)), "accuracy": float(evaluation.correct.mean())}
    if log_probs.shape[1] > 5:
        metrics["top5_accuracy"] = float(np.mean((log_probs > true_class).sum(axis=1) < 5))
    return metrics


def look_at_unlabeled(model, strategy, create_batches, batch_size):
    """Confidence on both views of about NUM_UNLABELED examples, as fields of Evaluation.

    Args:
      create_batches: a function from a record_stream.Share to a dataset of that part of training batches, which have
        `batch_size` unlabelled examples in all.
    """

    def create_joined(share):
        def join(position, batch):
            """Both views in one batch, since they have one shape: all originals of all hosts, then all augmented."""
            views = batch["original"], batch["augmented"]
            rows = tf.split(2 * batch_size * position + tf.range(2 * batch_size, dtype=tf.int64), 2)
            features = tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *views)
            return {"sup": features, "row": tf.concat([share.take(part, batch_size) for part in rows], axis=0)}

        return create_batches(share).enumerate().map(join)

    num_batches = -(-NUM_UNLABELED // batch_size)
    outputs = _predict(model, strategy, create_joined, num_batches, 2 * batch_size)
    probabilities = np.exp(outputs["sup"]).reshape(num_batches, 2, batch_size, -1)
    original, augmented = (probabilities[:, view].reshape(num_batches * batch_size, -1) for view in range(2))
    return {
        "original_confidence": original.max(axis=1),
        "augmented_confidence": augmented.max(axis=1),
        "pseudo_labels": original.argmax(axis=1).astype(np.int64),
    }


def _predict(model, strategy, create_batches, num_batches, batch_size):
    """What the model says about "sup" of some batches, and what else is in them, by "row"."""

    def create_numbered(share):
        def number(position, batch):
            rows = position * batch_size + tf.range(batch_size, dtype=tf.int64)
            return {"row": share.take(rows, batch_size)} | batch

        return create_batches(share).enumerate().map(number)

    batches = distribution.distribute(strategy, create_numbered)
    outputs = model.predict(batches, steps=num_batches, verbose=0)
    order = np.argsort(outputs["row"], kind="stable")  # several devices may return them in another one
    return {name: values[order] for name, values in outputs.items()}


def sampling(config):
    """The settings of a training of which only some batches are wanted: few records are read for them."""
    return dataclasses.replace(config, shuffle_buffer=min(config.shuffle_buffer, SHUFFLE_BUFFER))


# ---- the file -------------------------------------------------------------------------------------------------------


def write(model_dir, evaluation):
    files.write_arrays(os.path.join(model_dir, FILE), **evaluation._asdict())


def read(model_dir):
    """The Evaluation of a run, or None if it has none; a file that is no such thing is a ValueError."""
    path = os.path.join(model_dir, FILE)
    if not files.exists(path):
        return None
    arrays = files.read_arrays(path, ADVICE)
    with files.explain_damage(path, ADVICE):
        evaluation = Evaluation(**arrays)
        _check(evaluation)
    return evaluation


def _check(evaluation):
    num_classes, num_examples = len(evaluation.class_names), len(evaluation.labels)
    shapes = {"probabilities": (num_examples, num_classes), "labels": (num_examples,), "class_names": (num_classes,)}
    views = ("original_confidence", "augmented_confidence", "pseudo_labels")
    shapes |= {name: (len(evaluation.pseudo_labels),) for name in views}
    kinds = {"labels": "i", "class_names": "U", "pseudo_labels": "i"}
    for name, shape in shapes.items():
        array = getattr(evaluation, name)
        if array.shape != shape or array.dtype.kind != kinds.get(name, "f"):
            raise ValueError(f"{name} has shape={array.shape} and dtype={array.dtype}, expected shape={shape}")
        largest = np.inf if kinds.get(name) == "U" else num_classes - 1 if name in kinds else 1 + 1e-5
        if largest < np.inf and array.size and not (0 <= array.min() and array.max() <= largest):
            raise ValueError(f"{name} has values from {array.min()} to {array.max()}, expected 0 to {largest:g}")
    if not num_examples or num_classes < 2:
        raise ValueError(f"it has {num_examples} examples of {num_classes} classes")
