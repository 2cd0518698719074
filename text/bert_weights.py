"""Pre-trained BERT weights, read from whatever was published and written in BERT's own format.

    report = load_weights(network, "uncased_L-12_H-768_A-12/bert_model.ckpt")

`init_checkpoint` is everywhere a name of text.encoders, or the path of
  - a checkpoint of Google's BERT, without the endings .index and .data-... (TensorFlow 1),
  - a checkpoint of a tf-models-official encoder or pre-trainer, likewise (TensorFlow 2),
  - a Hugging Face folder with model.safetensors, or that file; or a folder with one of the above checkpoints.
All are read into one form: arrays by the names and with the shapes of Google's BERT.
"""

import hashlib
import json
import math
import os
import re
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from text import encoders
from utils import checkpoint_index, files

LAYER = r"(?:.*/)?transformer/layer_(\d+)/"
KERAS_NAMES = (  # tf-models-official's variables, whatever model they are in → Google's
    (r"(?:.*/)?word_embeddings/embeddings", "bert/embeddings/word_embeddings"),
    (r"(?:.*/)?position_embedding/embeddings", "bert/embeddings/position_embeddings"),
    (r"(?:.*/)?type_embeddings/embeddings", "bert/embeddings/token_type_embeddings"),
    (r"(?:.*/)?embeddings/layer_norm/(\w+)", r"bert/embeddings/LayerNorm/\1"),
    (LAYER + r"self_attention/(query|key|value)/(\w+)", r"bert/encoder/layer_\1/attention/self/\2/\3"),
    (LAYER + r"self_attention/attention_output/(\w+)", r"bert/encoder/layer_\1/attention/output/dense/\2"),
    (LAYER + r"self_attention_layer_norm/(\w+)", r"bert/encoder/layer_\1/attention/output/LayerNorm/\2"),
    (LAYER + r"intermediate/(\w+)", r"bert/encoder/layer_\1/intermediate/dense/\2"),
    (LAYER + r"output/(\w+)", r"bert/encoder/layer_\1/output/dense/\2"),
    (LAYER + r"output_layer_norm/(\w+)", r"bert/encoder/layer_\1/output/LayerNorm/\2"),
    (r"(?:.*/)?pooler_transform/(\w+)", r"bert/pooler/dense/\1"),
    (r"(?:.*/)?cls/predictions/output_bias/bias", "cls/predictions/output_bias"),
    (r"(?:.*/)?cls/predictions/transform/(.*)", r"cls/predictions/transform/\1"),
    (r"(?:.*/)?cls/seq_relationship/(output_\w+)", r"cls/seq_relationship/\1"),
)
HUGGING_FACE_NAMES = (  # applied one after the other
    (r"\.", "/"),
    (r"^(bert/)?(embeddings|encoder|pooler)/", r"bert/\2/"),
    (r"/layer/(\d+)/", r"/layer_\1/"),
    (r"LayerNorm/weight$", "LayerNorm/gamma"),
    (r"LayerNorm/bias$", "LayerNorm/beta"),
    (r"_embeddings/weight$", "_embeddings"),
    (r"/(dense|query|key|value)/weight$", r"/\1/kernel"),
    (r"^cls/predictions/bias$", "cls/predictions/output_bias"),
    (r"^cls/seq_relationship/(weight|bias)$", r"cls/seq_relationship/output_\1"),
    (r"output_weight$", "output_weights"),
)
# NumPy's name of each type, and the bytes of a number of those that no weight of a BERT is stored as.
SAFETENSORS_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
OTHER_SAFETENSORS_TYPES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I16": 2, "U16": 2}
OTHER_SAFETENSORS_TYPES |= {"I32": 4, "U32": 4, "I64": 8, "U64": 8, "C64": 8}
MAX_HEADER_BYTES = 100_000_000  # as the format says
MAX_BYTES = 1 << 48  # of a file, and of each of its arrays
DOWNLOAD_AGAIN = "download it again."
OPTIMIZER_NAMES = re.compile(r"adam|lamb|global_step|OPTIMIZER_SLOT|(^|/)_?optimizer/", re.IGNORECASE)
# Not all that is published has these; what is trained afterwards can start without.
OPTIONAL_PARTS = ("bert/pooler/", "cls/predictions/", "cls/seq_relationship/")


class LoadReport(NamedTuple):
    unused: tuple  # names in the checkpoint for which the model has no variable
    initial: tuple  # names of the model's variables that the checkpoint lacks, which stay as they were


def load_weights(model, init_checkpoint):
    """Fills the encoder of `model`, and its heads for pre-training if it has them, from `init_checkpoint`.

    The checkpoint must hold every weight of the encoder in the right shape. The pooler, the head of the language model
    (layers.MaskedLM called "cls/predictions") and that of the next sentence (text.models.pretrainer.NextSentence) may
    each be absent as a whole: then they keep their initial values.

    Returns:
      LoadReport, which is also logged.
    """
    variables, weights = named_variables(model), read_weights(init_checkpoint)
    lacking = tuple(part for part in OPTIONAL_PARTS if not any(name.startswith(part) for name in weights))
    initial = [name for name in variables if name.startswith(lacking)]
    variables = {name: variable for name, variable in variables.items() if name not in initial}
    _check_fit(variables, weights, init_checkpoint)
    for name, variable in variables.items():
        variable.assign(weights[name].reshape(variable.shape))
    report = LoadReport(tuple(sorted(weights.keys() - variables.keys())), tuple(initial))
    if report.initial:
        logging.warning("%s lacks %s: they keep their random values.", init_checkpoint, ", ".join(report.initial))
    if report.unused:
        logging.info("%s holds more than is used: %s", init_checkpoint, ", ".join(report.unused))
    return report


def save_weights(model, encoder_config, vocab_path, output_dir):
    """Writes the model's BERT weights, bert_config.json and vocab.txt; `output_dir` is then an `init_checkpoint`.

    Other programs read bert_model.ckpt as one of Google's.
    """
    variables = named_variables(model)
    arrays = [variables[name].numpy().reshape(_shape(name, variables[name].shape)) for name in variables]
    tf.io.gfile.makedirs(output_dir)
    prefix = os.path.join(output_dir, "bert_model.ckpt")
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=list(variables), shape_and_slices=[""] * len(variables), tensors=arrays
    )
    encoder_config.write(os.path.join(output_dir, "bert_config.json"))
    tf.io.gfile.copy(vocab_path, os.path.join(output_dir, "vocab.txt"), overwrite=True)
    return prefix


def find_config(init_checkpoint):
    """The path of the bert_config.json or config.json that lies beside the weights."""
    return _find_beside(init_checkpoint, ("bert_config.json", "config.json"), "bert_config_file")


def find_vocab(init_checkpoint):
    """The path of the vocab.txt that lies beside the weights."""
    return _find_beside(init_checkpoint, ("vocab.txt",), "vocab_file")


def folder_of(init_checkpoint):
    """The folder that the weights lie in."""
    path = encoders.locate(init_checkpoint)
    return path if tf.io.gfile.isdir(path) else os.path.dirname(path)


def checksum(init_checkpoint):
    """Tells these weights from others: the sha256 of the names and contents of their files."""
    digest = hashlib.sha256()
    for path in _list_files(init_checkpoint):
        digest.update(f"{os.path.basename(path)} {files.checksum(path)}\n".encode())
    return digest.hexdigest()


def stamp(init_checkpoint):
    """Changes when the files of these weights are written anew; for what is kept in the memory of a process."""
    stats = [(path, tf.io.gfile.stat(path)) for path in _list_files(init_checkpoint)]
    return tuple((path, stat.length, stat.mtime_nsec) for path, stat in stats)


def _list_files(init_checkpoint):
    path = _find_checkpoint(init_checkpoint)
    return [path] if path.endswith(".safetensors") else sorted(tf.io.gfile.glob(f"{path}.*"))


def read_weights(init_checkpoint):
    """All arrays of a checkpoint but the optimizer's, by Google's names where they belong to BERT.

    Returns:
      A dict of float32 arrays. Kernels are [inputs, outputs] and join the attention heads in one axis.
    """
    path = _find_checkpoint(init_checkpoint)
    weights = _read_hugging_face(path) if path.endswith(".safetensors") else _read_tensorflow(path)
    _check_numbers(path, weights)
    return weights


def named_variables(model):
    """The variables of the model's encoder and of its heads for pre-training by Google's names."""
    variables = {}
    for variable in model.weights:
        name = _from_keras(variable.name.split(":")[0])
        if name in variables:
            raise ValueError(f"The model holds several encoders ({name} comes twice): expected one.")
        if name:
            variables[name] = variable
    return variables


def _read_tensorflow(path):
    with files.explain_damage(path, DOWNLOAD_AGAIN):
        checkpoint_index.check(path)
        reader = tf.train.load_checkpoint(path)
        if not reader.has_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"):
            names = [name for name in reader.get_variable_to_shape_map() if not OPTIMIZER_NAMES.search(name)]
            return {name: reader.get_tensor(name) for name in names}
        return _read_tensorflow_2(reader)


def _check_numbers(path, weights):
    for name, array in weights.items():
        if name.startswith(("bert/", "cls/")) and not (array.dtype.kind != "O" and np.isfinite(array).all()):
            raise ValueError(f"{path}: {name} holds something else than finite numbers: {DOWNLOAD_AGAIN}")


def _read_tensorflow_2(reader):
    graph = TrackableObjectGraph.FromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    weights, dtypes = {}, reader.get_variable_to_dtype_map()
    for attribute in (attribute for node in graph.nodes for attribute in node.attributes):
        key, name = attribute.checkpoint_key, _from_keras(attribute.full_name) or attribute.full_name
        if OPTIMIZER_NAMES.search(key) or not dtypes[key].is_floating:
            continue
        if name in weights and name.startswith("bert/"):
            raise ValueError(f"it holds several encoders, {name} comes twice: expected one")
        weights[name] = reader.get_tensor(key)
        weights[name] = weights[name].reshape(_shape(name, weights[name].shape))
    return weights


def _read_hugging_face(path):
    weights = {}
    for name, array in read_safetensors(path).items():
        for pattern, replacement in HUGGING_FACE_NAMES:
            name = re.sub(pattern, replacement, name)
        if name in weights:
            raise ValueError(f"{path} holds {name} twice: expected the weights of one encoder.")
        weights[name] = array.T if name.endswith("/kernel") else array
    return weights


def read_safetensors(path):
    """The floating-point arrays of a safetensors file, as float32, by name."""
    num_bytes = tf.io.gfile.stat(path).length
    with files.open_file(path, "rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        if not 2 <= header_size <= min(num_bytes - 8, MAX_HEADER_BYTES):
            raise ValueError(f"{path} ({num_bytes} bytes) is not a safetensors file: {DOWNLOAD_AGAIN}")
        entries = _read_safetensors_header(path, file.read(header_size), num_bytes - 8 - header_size)
        data = file.read()
    return {name: _to_array(entry, data) for name, entry in entries.items() if entry["dtype"] in SAFETENSORS_TYPES}


def _read_safetensors_header(path, content, data_size):
    """The entries of all arrays; raises ValueError unless together they describe each byte of the data once."""
    try:
        entries = json.loads(content.decode(), object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its header is not JSON ({error}): {DOWNLOAD_AGAIN}") from error
    fields = {"dtype": str, "shape": [range(MAX_BYTES)], "data_offsets": [range(MAX_BYTES)]}
    files.check_fields(path, entries, {}, {"__metadata__": dict}, DOWNLOAD_AGAIN)
    entries.pop("__metadata__", None)
    for name, entry in entries.items():
        where = f"{path}: {files.shorten(name)}"
        files.check_fields(where, entry, fields, advice=DOWNLOAD_AGAIN)
        if entry["dtype"] not in SAFETENSORS_TYPES | OTHER_SAFETENSORS_TYPES or len(entry["data_offsets"]) != 2:
            raise ValueError(f"{where} has an unknown type or no two offsets: {files.shorten(entry)}: {DOWNLOAD_AGAIN}")
        if len(entry["shape"]) > 32:  # NumPy's limit
            raise ValueError(f"{where} has {len(entry['shape'])} dimensions: {DOWNLOAD_AGAIN}")
    expected = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        start, end = entry["data_offsets"]
        if start != expected or end - start != math.prod(entry["shape"]) * _item_size(entry["dtype"]):
            raise ValueError(f"{path}: the place of {files.shorten(name)} is {start} to {end}: {DOWNLOAD_AGAIN}")
        expected = end
    if data_size != expected:
        raise ValueError(f"{path} has {data_size} bytes of data where {expected} were expected: {DOWNLOAD_AGAIN}")
    return entries


def _without_repetition(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name comes twice")
    return dict(pairs)


def _item_size(dtype):
    return OTHER_SAFETENSORS_TYPES.get(dtype) or np.dtype(SAFETENSORS_TYPES[dtype]).itemsize


def _to_array(entry, data):
    start, end = entry["data_offsets"]
    array = np.frombuffer(data[start:end], SAFETENSORS_TYPES[entry["dtype"]]).reshape(entry["shape"])
    if entry["dtype"] == "BF16":  # the upper half of a float32
        return (array.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, which is refused
        return array.astype(np.float32)


def _from_keras(name):
    """Google's name of a variable of tf-models-official; None if it belongs to something else."""
    for pattern, replacement in KERAS_NAMES:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, replacement, name)
    return None


def _shape(name, shape):
    """Google's shape of a variable that Keras keeps apart by attention heads."""
    shape = list(shape)
    if "/attention/self/" in name:  # [inputs, heads, width] or [heads, width]
        return [*shape[:-2], shape[-2] * shape[-1]]
    if name.endswith("/attention/output/dense/kernel"):  # [heads, width, outputs]
        return [shape[0] * shape[1], shape[2]]
    return shape


def _check_fit(variables, weights, init_checkpoint):
    missing = [name for name in variables if name not in weights]
    if missing:
        raise ValueError(f"{init_checkpoint} lacks {len(missing)} weights of the encoder: {files.join_names(missing)}.")
    shapes = {name: (list(weights[name].shape), _shape(name, variables[name].shape)) for name in variables}
    wrong = [f"{name} has {has}, expected {wants}" for name, (has, wants) in shapes.items() if has != wants]
    if wrong:
        raise ValueError(
            f"{init_checkpoint} does not fit the encoder's configuration: {'; '.join(wrong[:5])}. Use the "
            "configuration file and the vocabulary that were published with it."
        )


def _find_checkpoint(init_checkpoint):
    """The path of a safetensors file or a TensorFlow checkpoint."""
    init_checkpoint = encoders.locate(init_checkpoint)
    if tf.io.gfile.exists(init_checkpoint + ".index") or init_checkpoint.endswith(".safetensors"):
        return init_checkpoint
    safetensors = os.path.join(init_checkpoint, "model.safetensors")
    if tf.io.gfile.exists(safetensors):
        return safetensors
    names = tf.io.gfile.listdir(init_checkpoint) if tf.io.gfile.isdir(init_checkpoint) else []
    prefixes = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    if len(prefixes) != 1:
        raise ValueError(
            f"init_checkpoint={init_checkpoint}: expected a TensorFlow checkpoint, without the ending .index, or a "
            f"folder with model.safetensors or one such checkpoint; {len(prefixes)} were found there."
        )
    return os.path.join(init_checkpoint, prefixes[0])


def _find_beside(init_checkpoint, names, setting):
    folder = folder_of(init_checkpoint)
    for name in names:
        if tf.io.gfile.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    raise ValueError(f"No {' or '.join(names)} lies in {folder or '.'}: say with {setting} where it is.")
