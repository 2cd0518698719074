"""A translation model as a folder: config.json, vocab.subwords, weights.npz.

save_model("models/en_fr", config, vocabulary, weights, storage="float16")
config, vocabulary, weights = load_model("models/en_fr")
"""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from back_translate.subwords import SubwordVocabulary
from back_translate.transformer import TransformerConfig, weight_shapes
from utils import files

STORAGES = ("float32", "float16", "int8")
SCALE = "::scale"  # what the name of a weight's scales ends in
PURE_SAMPLING = {"top_k": 0, "top_p": 1.0}  # from all subwords, as in the paper


def save_model(folder, config, vocabulary, weights, storage="float32", facts=None):
    """Writes a model.

    Args:
      weights: dict from name to array, as transformer.weight_shapes names them.
      storage: "int8" keeps a whole number from -127 to 127 for each entry of a matrix and a scale for each of its rows.
      facts: further content of config.json for a reader, such as languages and BLEU.
    """
    tf.io.gfile.makedirs(folder)
    vocabulary.write(os.path.join(folder, "vocab.subwords"))
    arrays = {}
    for name, array in weights.items():
        array = np.asarray(array, np.float32)
        if storage == "int8" and array.ndim == 2:
            arrays[name], arrays[name + SCALE] = quantise(array)
        else:
            arrays[name] = array.astype("float16" if storage == "int8" else storage)
    files.write_arrays(os.path.join(folder, "weights.npz"), **arrays)
    files.write_json(
        os.path.join(folder, "config.json"),
        {"model": dataclasses.asdict(config), "storage": storage, "facts": facts or {}},
    )


def quantise(matrix):
    """Returns int8 [n, m] and float32 [n, 1], whose product is nearest to the matrix."""
    scales = np.maximum(np.abs(matrix).max(axis=1, keepdims=True), 1e-12) / 127
    return np.round(matrix / scales).astype(np.int8), scales.astype(np.float32)


def load_model(folder):
    """Returns (TransformerConfig, SubwordVocabulary, dict from name to float32 array).

    Raises:
      ValueError: for a folder that is not such a model, and if vocabulary and weights do not fit.
    """
    path = os.path.join(folder, "config.json")
    if not tf.io.gfile.exists(path):
        raise ValueError(f"{folder} is not a translation model: there is no {path}.")
    config = TransformerConfig(**files.read_json(path)["model"])
    vocabulary = SubwordVocabulary.read(os.path.join(folder, "vocab.subwords"))
    check_vocabulary(folder, config, vocabulary)
    weights_path = os.path.join(folder, "weights.npz")
    with files.open_file(weights_path, "rb") as file:
        stored = dict(np.load(file))
    weights = {}
    for name, shape in weight_shapes(config).items():
        if name not in stored:
            raise ValueError(f"{weights_path} lacks the weight {name}.")
        weights[name] = stored[name].astype(np.float32)
        if name + SCALE in stored:
            weights[name] *= stored[name + SCALE]
        if list(weights[name].shape) != shape:
            raise ValueError(f"{weights_path}: {name} has shape {list(weights[name].shape)}, expected {shape}.")
    return config, vocabulary, weights


def read_sampling(folder):
    """How to sample from the model in a folder of either engine, where nothing else is asked for.

    Returns:
      dict with top_k and top_p: what "sampling" in config.json has, and PURE_SAMPLING else.
    """
    path = os.path.join(folder, "config.json")
    recommended = files.read_json(path).get("sampling", {}) if tf.io.gfile.exists(path) else {}
    if not recommended.keys() <= PURE_SAMPLING.keys():
        raise ValueError(f"{path}: sampling={recommended}: expected no other names than {', '.join(PURE_SAMPLING)}.")
    return PURE_SAMPLING | recommended


def write_sampling(folder, sampling):
    """Makes `sampling`, a dict with top_k and top_p, what the model in the folder recommends."""
    path = os.path.join(folder, "config.json")
    recommended = {name: value for name, value in sampling.items() if value != PURE_SAMPLING[name]}
    if recommended:
        files.write_json(path, files.read_json(path) | {"sampling": recommended})


def check_vocabulary(path, config, vocabulary):
    if len(vocabulary) != config.vocab_size:
        raise ValueError(
            f"{path}: the vocabulary has {len(vocabulary)} subwords, the weights are for {config.vocab_size}. Give the "
            "vocabulary that the model was trained with."
        )
