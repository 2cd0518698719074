"""Reads the weights of a Transformer from a tensor2tensor checkpoint.

config, weights = read_checkpoint("checkpoints/enfr/model.ckpt-500000", num_heads=16)
"""

import re

import numpy as np
import tensorflow as tf

from back_translate import model_files
from back_translate.transformer import TransformerConfig, weight_shapes
from utils import checkpoint_index, files

ADVICE = "give the prefix of a whole TensorFlow checkpoint, such as model.ckpt-500000."
BODY = "transformer/body/"
EMBEDDING = re.compile(r"transformer/symbol_modality_(\d+)_(\d+)/shared/weights_(\d+)$")


def read_checkpoint(path, num_heads, target_space_id=0):
    """Returns (TransformerConfig, dict from name to array). Optimizer slots and counters are left out.

    Args:
      path: the checkpoint's prefix, such as model.ckpt-500000.
      num_heads: of the attention, which the weights do not tell: 8 for transformer_base, 16 for transformer_big.
    """
    with files.explain_damage(path, ADVICE):
        checkpoint_index.check(path)
        reader = tf.train.load_checkpoint(path)
        stored = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    config = find_config(path, stored, num_heads, target_space_id)
    weights = {}
    with files.explain_damage(path, ADVICE):
        weights["embedding"] = read_embedding(reader, stored)
    for name, shape in weight_shapes(config).items():
        if name == "embedding":
            continue
        found = shape_of(path, stored, BODY + name)
        if found != tuple(shape):
            raise ValueError(f"{path}: {BODY + name} has shape {found}, expected {tuple(shape)}.")
        with files.explain_damage(path, ADVICE):
            weights[name] = reader.get_tensor(BODY + name)
    check_numbers(path, weights, config)
    return config, weights


def check_numbers(path, weights, config):
    for name, shape in weight_shapes(config).items():
        array = weights[name]
        if list(array.shape) != shape or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ValueError(
                f"{path}: {name} has shape={list(array.shape)} and dtype={array.dtype}: expected finite numbers of "
                f"shape={shape}; {ADVICE}"
            )


def find_config(path, stored, num_heads, target_space_id):
    """The sizes of the model whose variables have the shapes `stored`."""
    shards = [name for name in stored if EMBEDDING.match(name)]
    if not shards:
        raise ValueError(
            f"{path} has no transformer/symbol_modality_*/shared/weights_*: expected a tensor2tensor Transformer with "
            "shared embeddings, such as transformer_base or transformer_big."
        )
    kernel_shape = shape_of(path, stored, f"{BODY}encoder/layer_0/ffn/conv1/kernel")
    if {len(kernel_shape), *(len(stored[name]) for name in shards)} != {2}:
        raise ValueError(f"{path}: its embeddings or kernels are no matrices: expected a tensor2tensor Transformer.")
    sizes = {
        "vocab_size": sum(stored[name][0] for name in shards),
        "hidden_size": kernel_shape[0],
        "num_encoder_layers": count_layers(stored, "encoder"),
        "num_decoder_layers": count_layers(stored, "decoder"),
        "num_heads": num_heads,
        "filter_size": kernel_shape[1],
    }
    files.check_fields(path, sizes, model_files.FIELDS, advice="expected a tensor2tensor Transformer.")
    return TransformerConfig(**sizes, target_space_id=target_space_id)


def shape_of(path, stored, name):
    if name not in stored:
        raise ValueError(f"{path} lacks the variable {name}: expected a tensor2tensor Transformer.")
    return stored[name]


def count_layers(stored, half):
    return sum(re.match(f"{BODY}{half}/layer_(\\d+)/ffn/conv1/kernel$", name) is not None for name in stored)


def read_embedding(reader, stored):
    """The rows of all shards, in the order of their numbers."""
    shards = sorted(filter(EMBEDDING.match, stored), key=lambda name: int(EMBEDDING.match(name).group(3)))
    return np.concatenate([reader.get_tensor(name) for name in shards])
