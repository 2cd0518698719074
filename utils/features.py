"""UDA on features: vectors that some frozen network made of texts, images, sound or anything else.

    data = read_file("features.npz", config)
    train_and_evaluate(config, data, "runs/mine", strategy)

The classifier is linear. It starts at 0 and sees features with mean 0 and deviation 1 over the unlabelled examples.
"""

import functools
import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers

from utils import files, labelled_subsets, record_stream, saved_models, training
from utils.optimizers import create_bert_adamw
from utils.record_stream import WHOLE
from utils.settings import ObjectiveConfig, RecordsConfig, config_class, setting
from utils.tracing import as_written
from utils.uda_model import UDAModel

LABELLED, DEV = 4, 5  # begin the seeds of what is drawn
BLOCK = 65536  # examples whose deviations are in memory at once, in 64 bits


# What suits a linear classifier on the features of twenty to some hundred labelled examples.
RECIPE = {"train_batch_size": 20, "unsup_ratio": 5, "unsup_coeff": 20.0, "uda_softmax_temp": 0.4}
RECIPE |= {"learning_rate": 3e-4, "train_steps": 600, "warmup_steps": 0, "bias_correction": True}
RECIPE |= {"weight_decay_rate": 0.0, "clip_norm": 0.0}
RECIPE |= {"save_steps": 600, "log_steps": 100, "iterations": 50, "eval_batch_size": 500}


@config_class()
class AdamConfig(ObjectiveConfig):
    """A run with BERT's optimizer."""

    weight_decay_rate: float = setting(0.01, "AdamW's decay, of all weights but biases and LayerNorm.", minimum=0)
    clip_norm: float = setting(1.0, "Largest norm of the whole gradient; 0 for no clipping.", minimum=0)
    bias_correction: bool = setting(False, "Correct Adam's averages in the first steps; BERT was trained without.")
    mixed_precision: str = setting("", "Compute in 16 bits; '' for 32.", ("", "float16", "bfloat16"))


@config_class(**RECIPE)
class HeadConfig(RecordsConfig, AdamConfig):
    """A training on features."""


# Of what follows, an array may also be a tensor of TensorFlow.
class Labelled(NamedTuple):
    features: np.ndarray  # floating point [number, width]
    labels: np.ndarray  # int64 [number]


class FeatureData(NamedTuple):
    class_names: tuple
    sup: Labelled
    dev: Labelled | None = None
    test: Labelled | None = None
    original: np.ndarray | None = None  # [N, width]: the unlabelled examples
    augmented: np.ndarray | None = None  # [copies · N, width]: all of them in the same order, copy after copy

    @property
    def width(self):
        return self.sup.features.shape[1]


# ---- network --------------------------------------------------------------------------------------------------------


class Standardize(layers.Layer):
    """Brings each feature to mean 0 and deviation 1, by numbers that are weights of the network but never trained."""

    def build(self, shape):
        self.mean = self.add_weight("mean", shape[-1:], initializer="zeros", trainable=False)
        self.deviation = self.add_weight("deviation", shape[-1:], initializer="ones", trainable=False)

    def call(self, features):
        return (tf.cast(features, self.mean.dtype) - self.mean) / self.deviation


def add_head(features, num_classes):
    """The classifier on top of features, a Keras tensor [batch, width]: float32 logits [batch, num_classes]."""
    standardized = Standardize(name="standardize", dtype=tf.float32)(features)
    return layers.Dense(num_classes, kernel_initializer="zeros", dtype=tf.float32, name="logits")(standardized)


def create_head(width, num_classes, statistics):
    """The classifier alone, as a network from features.

    Args:
      statistics: (mean, deviation), as compute_statistics returns them.
    """
    features = tf.keras.Input([width], name="features")
    network = tf.keras.Model(features, add_head(features, num_classes), name="head")
    network.get_layer("standardize").set_weights(statistics)
    return network


def get_head_weights(network):
    """Mean, deviation, kernel and bias of a network that ends in add_head."""
    return [weight for name in ("standardize", "logits") for weight in network.get_layer(name).get_weights()]


def set_head_weights(network, weights):
    network.get_layer("standardize").set_weights(weights[:2])
    network.get_layer("logits").set_weights(weights[2:])


def compute_statistics(features):
    """Mean and deviation of each feature over the examples; a feature that never changes gets the deviation 1."""
    features = np.asarray(features)  # without a copy, also of a tensor
    mean = features.mean(axis=0, dtype=np.float64)

    def sum_squares(block):
        deviations = block - mean
        return np.square(deviations, out=deviations).sum(axis=0)

    blocks = (features[start : start + BLOCK] for start in range(0, len(features), BLOCK))
    deviation = np.sqrt(sum(map(sum_squares, blocks)) / len(features))
    # Rounding leaves a constant feature a tiny deviation, by which nothing must be divided.
    constant = deviation <= 1e-6 * np.maximum(np.abs(mean), 1e-6)
    if constant.all():
        raise ValueError(f"all {features.shape[1]} features are the same for all {len(features)} unlabelled examples.")
    return [mean.astype(np.float32), np.where(constant, 1.0, deviation).astype(np.float32)]


# ---- training -------------------------------------------------------------------------------------------------------


def train_and_evaluate(config, data, model_dir, strategy, do_train=True, do_eval=True, export=None, identity=None):
    """Runs or continues the training of a head on `data`, then evaluates and exports the chosen checkpoint.

    Args:
      config: HeadConfig, or another that has all its fields.
      export: a function (model, export_dir); by default the exported network takes features.
      identity: what training.Job has as `data`; by default that of the features themselves.

    Returns:
      The content of result.json, as a dict.
    """
    if config.unsup_ratio and data.original is None:
        raise ValueError(
            f"unsup_ratio={config.unsup_ratio}, but there are no unlabelled examples: give unlabeled and augmented, or "
            "train without them, with --unsup_ratio=0."
        )
    statistics = compute_statistics(data.sup.features if data.original is None else data.original)
    data = as_tensors(data if config.unsup_ratio else data._replace(original=None, augmented=None))
    create_network = functools.partial(create_head, data.width, len(data.class_names), statistics)

    def evaluation_set(part):
        if part is not None:
            create = functools.partial(create_eval_dataset, part, config.eval_batch_size)
            return training.EvaluationSet(create, len(part.labels))

    job = training.Job(
        create_model=lambda: UDAModel(create_network, len(data.class_names), config),
        create_optimizer=lambda model: create_bert_adamw(config, bias_correction=config.bias_correction),
        create_batches=functools.partial(create_train_dataset, config, data),
        export=export or functools.partial(export_head, data),
        dev=evaluation_set(data.dev),
        test=evaluation_set(data.test),
        class_names=data.class_names,
        create_unlabeled=functools.partial(create_train_dataset, config, data, 0) if config.unsup_ratio else None,
        data=identity or identify(data),
    )
    return training.run(job, config, model_dir, strategy, do_train, do_eval)


def identify(data):
    """Checksums of what is trained on, as training.Job has them."""
    parts = {"labelled": [np.array(data.class_names).astype(str), *data.sup]}
    parts |= {"unlabelled": [data.original, data.augmented]} if data.original is not None else {}
    return {
        name: files.checksum_of(np.ascontiguousarray(array).view(np.uint8).data for array in arrays)
        for name, arrays in parts.items()
    }


def as_tensors(data):
    """The same FeatureData in tensors, which all datasets that are made of them share."""

    def convert(values):
        return None if values is None else tf.convert_to_tensor(values)

    with tf.device("CPU"):  # where batches are put together
        return FeatureData(data.class_names, *tf.nest.map_structure(convert, data[1:]))


@as_written
def create_train_dataset(config, data, start_step=0, share=WHOLE):
    """A share of the global batches for the steps start_step, start_step + 1, …, as a function of seed and step."""
    data = as_tensors(data)
    (sup, labels), original, augmented = data.sup, data.original, data.augmented

    def take(features, rows):
        return tf.cast(tf.gather(features, rows), tf.float32)

    def batch_of_step(step):
        rows = record_stream.order_of_step(step, len(labels), config.train_batch_size, 2 * config.seed, share)
        batch = {"sup": take(sup, rows), "label": tf.gather(labels, rows)}
        if config.unsup_ratio:
            batch_size = config.train_batch_size * config.unsup_ratio
            rows = record_stream.order_of_step(step, len(augmented), batch_size, 2 * config.seed + 1, share)
            batch |= {"original": take(original, rows % len(original)), "augmented": take(augmented, rows)}
        return batch

    return tf.data.Dataset.range(start_step, tf.int64.max).map(batch_of_step, num_parallel_calls=tf.data.AUTOTUNE)


@as_written
def create_eval_dataset(part, batch_size, share=WHOLE):
    """Batches of fixed size with every example once; the last one is filled up with examples of weight 0."""

    def create_batch(features, labels):
        batch = {"sup": tf.cast(features, tf.float32), "label": labels, "weight": tf.ones_like(labels, tf.float32)}
        return record_stream.fill_up(batch, share.size(batch_size))

    batches = tf.data.Dataset.from_tensor_slices(tuple(part)).batch(batch_size)
    return batches.map(lambda *columns: create_batch(*(share.take(column, batch_size) for column in columns)))


# ---- export ---------------------------------------------------------------------------------------------------------


def export_head(data, model, export_dir):
    """Writes the evaluation network as a SavedModel that takes features, and features.json beside it."""
    network = model.evaluation_network

    @tf.function(input_signature=[tf.TensorSpec([None, data.width], tf.float32, name="features")], autograph=False)
    def serve(features):
        probabilities = tf.nn.softmax(network(features, training=False))
        return {"probabilities": probabilities, "label": tf.argmax(probabilities, axis=-1)}

    module = tf.Module()
    module.weights, module.serve = network.weights, serve
    saved_models.save(export_dir, module, serve)
    description = {"class_names": list(data.class_names), "width": data.width}
    with saved_models.explain_refusal(export_dir):
        files.write_json(os.path.join(export_dir, "features.json"), description)


# ---- the user's own features ----------------------------------------------------------------------------------------

FILE_KEYS = ("features", "labels", "unlabeled", "augmented", "test_features", "test_labels")


def read_file(path, config):
    """Reads an .npz file of features.

    Args:
      path: holds the arrays `features` [n, width] and `labels` [n], numbers or strings; for UDA `unlabeled` [N, width]
        and `augmented` [N, width] or [copies, N, width], the same examples in the same order; to test on
        `test_features` and `test_labels`.
      config: utils.settings.RecordsConfig: sup_size, dev_size and label_seed choose among the labelled examples.
    """
    if not path:
        raise ValueError("features_file='': give the .npz file of the features.")
    arrays = files.read_arrays(path, "expected an .npz file of arrays.", f"features_file={path}")
    missing = [name for name in ("features", "labels") if name not in arrays]
    unknown = sorted(arrays.keys() - set(FILE_KEYS))
    if missing or unknown:
        what = f"lacks {', '.join(missing)}" if missing else f"has {files.join_names(unknown)}"
        raise ValueError(f"features_file={path} {what}: expected arrays named {', '.join(FILE_KEYS)}.")
    try:
        return split_labelled(create_data(**arrays), config)
    except ValueError as error:
        raise ValueError(f"features_file={path}: {error}") from error


def split_labelled(data, config):
    """Chooses sup_size labelled examples and dev_size further ones, equally many of each class, or all there are."""
    labels, order = data.sup.labels, np.arange(len(data.sup.labels))
    if config.label_seed >= 0:
        order = np.random.default_rng([LABELLED, config.label_seed]).permutation(order)
    draw = (config.sup_size, config.dev_size, [DEV, config.label_seed + 1])
    parts = labelled_subsets.draw(labels, order, data.class_names, *draw, balanced=True)
    sup, dev = (Labelled(data.sup.features[rows], labels[rows]) for rows in map(np.sort, parts))
    return data._replace(sup=sup, dev=dev if config.dev_size else None)


def create_data(features, labels, unlabeled=None, augmented=None, test_features=None, test_labels=None):
    """Checks arrays as read_file describes them. Returns FeatureData, with the numbers of sorted classes as labels."""
    features = check_features("features", features)
    class_names, numbers = number_labels(labels, len(features))
    width, test = features.shape[1], None
    if test_features is not None:
        test_features = check_features("test_features", test_features, width)
        test = Labelled(test_features, find_labels(test_labels, class_names, len(test_features)))
    if (unlabeled is None) != (augmented is None):
        raise ValueError("expected unlabeled and augmented together: the same examples, and their augmented copies.")
    if unlabeled is not None:
        unlabeled = check_features("unlabeled", unlabeled, width)
        augmented = np.asarray(augmented)
        copies = augmented[np.newaxis] if augmented.ndim == 2 else augmented
        if copies.ndim != 3 or copies.shape[1] != len(unlabeled):
            raise ValueError(
                f"augmented has shape={augmented.shape}, unlabeled has {len(unlabeled)} examples: expected as many, "
                f"[{len(unlabeled)}, {width}] or [copies, {len(unlabeled)}, {width}]."
            )
        augmented = check_features("augmented", copies.reshape(-1, copies.shape[2]), width)
    return FeatureData(class_names, Labelled(features, numbers), None, test, unlabeled, augmented)


def check_features(name, features, width=None):
    """Returns them as an array of 16 or 32 bits; raises ValueError unless they are finite, [number, width]."""
    features = np.asarray(features)
    if features.ndim != 2 or 0 in features.shape or features.dtype.kind not in "fiu":
        raise ValueError(f"{name}: found shape={features.shape} of {features.dtype}, expected numbers [number, width].")
    if width not in (None, features.shape[1]):
        raise ValueError(f"{name} are {features.shape[1]} wide, expected {width}, as wide as the labelled ones.")
    with np.errstate(over="ignore"):  # what is too large becomes infinite
        features = features.astype(np.float16 if features.dtype == np.float16 else np.float32, copy=False)
    if not np.isfinite(features).all():
        row = int(np.argmin(np.isfinite(features).all(axis=1)))
        raise ValueError(f"{name}[{row}] holds a number that is not finite: leave such examples out.")
    return features


def number_labels(labels, expected_number):
    labels = np.asarray(labels)
    if labels.shape != (expected_number,):
        raise ValueError(f"labels have shape={labels.shape}: expected one for each of {expected_number} examples.")
    if labels.dtype.kind not in "iuUb":
        raise ValueError(f"labels are of {labels.dtype}: expected whole numbers or strings.")
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"labels are all {classes.tolist()}: expected at least two classes.")
    return tuple(classes.tolist()), numbers.astype(np.int64)


def find_labels(labels, class_names, expected_number):
    labels = np.asarray([] if labels is None else labels)
    if labels.shape != (expected_number,):
        raise ValueError(f"test_labels have shape={labels.shape}: expected one for each of {expected_number} examples.")
    numbers = {name: number for number, name in enumerate(class_names)}
    unknown = sorted(set(labels.tolist()) - set(numbers))
    if unknown:
        raise ValueError(f"test_labels hold {unknown[:3]}, which no labelled example has: known are {class_names}.")
    return np.array([numbers[label] for label in labels.tolist()], np.int64)
