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

# Of the stored TransformerConfig. A number beyond these is no size of a Transformer.
FIELDS = {
    "vocab_size": range(3, 1 << 24),
    "hidden_size": range(2, 1 << 16),
    "num_encoder_layers": range(1, 1 << 10),
    "num_decoder_layers": range(1, 1 << 10),
    "num_heads": range(1, 1 << 10),
    "filter_size": range(1, 1 << 18),
}
OPTIONAL_FIELDS = {"target_space_id": range(32)}
ADVICE = "restore the model, or train it again."
STORAGES = ("float32", "float16", "int8")
SCALE = "::scale"  # what the name of a weight's scales ends in
SAMPLING_FIELDS = {"top_k": range(1 << 24), "top_p": float}
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
    config = read_config(path)
    vocabulary = SubwordVocabulary.read(os.path.join(folder, "vocab.subwords"))
    check_vocabulary(folder, config, vocabulary)
    weights_path = os.path.join(folder, "weights.npz")
    stored, weights = files.read_arrays(weights_path, ADVICE), {}
    for name, shape in weight_shapes(config).items():
        weights[name] = read_weight(stored, name, shape, weights_path)
    return config, vocabulary, weights


def read_sampling(folder):
    """How to sample from the model in a folder of either engine, where nothing else is asked for.

    Returns:
      dict with top_k and top_p: what "sampling" in config.json has, and PURE_SAMPLING else.
    """
    path = os.path.join(folder, "config.json")
    stored = files.read_json(path) if tf.io.gfile.exists(path) else {}
    recommended = files.check_fields(path, stored, {}, {"sampling": dict}, ADVICE).get("sampling", {})
    if not recommended.keys() <= PURE_SAMPLING.keys():
        raise ValueError(
            f"{path}: sampling={files.shorten(recommended)}: expected no other names than {', '.join(PURE_SAMPLING)}."
        )
    files.check_fields(f"{path}, sampling", recommended, {}, SAMPLING_FIELDS, ADVICE)
    sampling = PURE_SAMPLING | recommended
    if not 0 < sampling["top_p"] <= 1:
        raise ValueError(f"{path}: top_p={sampling['top_p']}: expected more than 0, up to 1; {ADVICE}")
    return sampling


def write_sampling(folder, sampling):
    """Makes `sampling`, a dict with top_k and top_p, what the model in the folder recommends."""
    path = os.path.join(folder, "config.json")
    recommended = {name: value for name, value in sampling.items() if value != PURE_SAMPLING[name]}
    if recommended:
        files.write_json(path, files.read_json(path) | {"sampling": recommended})


def read_config(path):
    """The TransformerConfig in a config.json."""
    stored = files.check_fields(path, files.read_json(path), {"model": dict}, advice=ADVICE)["model"]
    files.check_fields(f"{path}, model", stored, FIELDS, OPTIONAL_FIELDS, advice=ADVICE)
    unknown = sorted(stored.keys() - FIELDS.keys() - OPTIONAL_FIELDS.keys())
    if unknown:
        raise ValueError(
            f"{path}, model: {files.shorten(unknown[0])} is unknown: expected {', '.join(FIELDS)}; {ADVICE}"
        )
    try:
        return TransformerConfig(**stored)
    except ValueError as error:
        raise ValueError(f"{path}, model: {error}") from error


def read_weight(stored, name, shape, path):
    """One weight as float32, checked: of the right shape, and all numbers finite."""
    if name not in stored:
        raise ValueError(f"{path} lacks the weight {name}: {ADVICE}")
    if list(stored[name].shape) != shape:
        raise ValueError(f"{path}: {name} has shape {list(stored[name].shape)}, expected {shape}: {ADVICE}")
    scale = stored.get(name + SCALE)
    kinds = stored[name].dtype.kind + (scale.dtype.kind if scale is not None else "")
    if kinds not in ("f", "if") or (scale is not None and scale.shape != (shape[0], 1)):
        raise ValueError(f"{path}: {name} has dtype={stored[name].dtype}, expected {' or '.join(STORAGES)}: {ADVICE}")
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
        weight = stored[name].astype(np.float32)
        if scale is not None:
            weight *= scale.astype(np.float32)
    if not np.isfinite(weight).all():
        raise ValueError(f"{path}: {name} holds numbers that are not finite: {ADVICE}")
    return weight


def check_vocabulary(path, config, vocabulary):
    if len(vocabulary) != config.vocab_size:
        raise ValueError(
            f"{path}: the vocabulary has {len(vocabulary)} subwords, the weights are for {config.vocab_size}. Give the "
            "vocabulary that the model was trained with."
        )
