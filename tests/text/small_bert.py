"""Small BERTs with random weights, written in every format in which such weights are published."""

import dataclasses
import json
import os

import numpy as np
import tensorflow as tf
from official.nlp.modeling import models, networks

from text.models import BertConfig

# The widths all differ, and a head is not as wide as there are heads, so that few mistakes fit by chance.
CONFIG = BertConfig(
    vocab_size=30,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
)
NUM_HEADS, HEAD_WIDTH = 3, 4


def create_features(num_texts=4, length=9, seed=0):
    """Texts of different lengths, padded with 0, whose second half is of type 1."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, CONFIG.vocab_size, [num_texts, length]).astype(np.int32)
    for row in range(1, num_texts):
        ids[row, length - 2 * row :] = 0
    type_ids = np.where(np.arange(length) < length // 2, 0, ids != 0).astype(np.int32)
    return {"ids": ids, "type_ids": type_ids}


def create_weights(config=CONFIG, seed=0):
    """Random arrays for all weights that Google publishes, by their names and in their shapes."""
    rng = np.random.default_rng(seed)
    width, inner, cls = config.hidden_size, config.intermediate_size, "cls/predictions/"
    shapes = {
        "bert/embeddings/word_embeddings": [config.vocab_size, width],
        "bert/embeddings/position_embeddings": [config.max_position_embeddings, width],
        "bert/embeddings/token_type_embeddings": [config.type_vocab_size, width],
    }
    shapes |= _layer_norm_shapes("bert/embeddings/LayerNorm", width)
    for layer in range(config.num_hidden_layers):
        name = f"bert/encoder/layer_{layer}/"
        for part in ("query", "key", "value"):
            shapes |= _dense_shapes(f"{name}attention/self/{part}", width, width)
        shapes |= _dense_shapes(name + "attention/output/dense", width, width)
        shapes |= _layer_norm_shapes(name + "attention/output/LayerNorm", width)
        shapes |= _dense_shapes(name + "intermediate/dense", width, inner)
        shapes |= _dense_shapes(name + "output/dense", inner, width)
        shapes |= _layer_norm_shapes(name + "output/LayerNorm", width)
    shapes |= _dense_shapes("bert/pooler/dense", width, width)
    shapes |= _dense_shapes(cls + "transform/dense", width, width)
    shapes |= _layer_norm_shapes(cls + "transform/LayerNorm", width)
    shapes |= {cls + "output_bias": [config.vocab_size]}
    shapes |= {"cls/seq_relationship/output_weights": [2, width], "cls/seq_relationship/output_bias": [2]}
    return {name: rng.normal(size=shape, scale=0.5).astype(np.float32) for name, shape in shapes.items()}


def _dense_shapes(name, inputs, outputs):
    return {name + "/kernel": [inputs, outputs], name + "/bias": [outputs]}


def _layer_norm_shapes(name, width):
    return {name + "/gamma": [width], name + "/beta": [width]}


def without(weights, part):
    return {name: array for name, array in weights.items() if part not in name}


def write_google(folder, weights, config=CONFIG):
    """A checkpoint of TensorFlow 1 with the optimizer's state. Returns what --init_checkpoint takes."""
    _write_companions(folder, "bert_config.json", config)
    state = {f"{name}/{slot}": array for name, array in weights.items() for slot in ("adam_m", "adam_v")}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, array in (weights | state | {"global_step": np.int64(7)}).items():
            tf.compat.v1.get_variable(name, initializer=array)
        session.run(tf.compat.v1.global_variables_initializer())
        return tf.compat.v1.train.Saver().save(session, f"{folder}/bert_model.ckpt", write_meta_graph=False)


def write_hugging_face(folder, weights, config=CONFIG, prefix="bert.", dtype="F32"):
    """config.json, vocab.txt and model.safetensors, which PyTorch keeps with kernels [outputs, inputs]."""
    _write_companions(folder, "config.json", config, model_type="bert", layer_norm_eps=1e-12)
    arrays = {_hugging_face_name(name, prefix): _hugging_face_array(name, array) for name, array in weights.items()}
    if "cls.predictions.bias" in arrays:  # tied to the embeddings
        arrays["cls.predictions.decoder.weight"] = weights["bert/embeddings/word_embeddings"]
    arrays[prefix + "embeddings.position_ids"] = np.arange(config.max_position_embeddings)[np.newaxis]
    write_safetensors(f"{folder}/model.safetensors", arrays, dtype)
    return str(folder)


def _hugging_face_name(name, prefix):
    name = name.replace("bert/", prefix).replace("/", ".").replace("layer_", "layer.")
    name = name.replace("kernel", "weight").replace("gamma", "weight").replace("beta", "bias")
    name = name.replace("relationship.output_weights", "relationship.weight").replace(".output_bias", ".bias")
    return name + ".weight" * name.endswith("_embeddings")


def _hugging_face_array(name, array):
    return array.T if name.endswith("kernel") else array


def write_safetensors(path, arrays, dtype="F32"):
    """Floating-point arrays as `dtype`: F32, F16 or BF16."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in arrays.items():
        entry_dtype, content = "I64", array.tobytes()
        if array.dtype == np.float32:
            entry_dtype = dtype
            content = np.ascontiguousarray(array.astype({"F32": "<f4", "F16": "<f2", "BF16": "<f4"}[dtype]))
            content = (content.view("<u4") >> 16).astype("<u2").tobytes() if dtype == "BF16" else content.tobytes()
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": entry_dtype, "shape": list(array.shape), "data_offsets": offsets}
        data += content
    header = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + data)


def write_tf_models(folder, weights, config=CONFIG, encoder_class=networks.BertEncoder, key="model"):
    """A checkpoint of an encoder of tf-models-official, as its releases and its tools for conversion write it."""
    encoder = _create_tf_models_encoder(encoder_class, config, weights)
    _write_companions(folder, "bert_config.json", config)
    return tf.train.Checkpoint(**{key: encoder}).write(f"{folder}/bert_model.ckpt")


def write_tf_models_pretrainer(folder, weights, config=CONFIG):
    """A checkpoint in the middle of pre-training: encoder, masked language model and optimizer."""
    encoder = _create_tf_models_encoder(networks.BertEncoderV2, config, weights)
    pretrainer = models.BertPretrainerV2(encoder)
    pretrainer({name: tf.zeros([1, 1], tf.int32) for name in [*encoder.inputs, "masked_lm_positions"]})
    head, cls = pretrainer.masked_lm, "cls/predictions/"
    head.dense.set_weights([weights[cls + "transform/dense/kernel"], weights[cls + "transform/dense/bias"]])
    head.layer_norm.set_weights([weights[f"{cls}transform/LayerNorm/{part}"] for part in ("gamma", "beta")])
    head.bias.assign(weights[cls + "output_bias"])
    optimizer = tf.keras.optimizers.Adam(jit_compile=False)
    optimizer.build(pretrainer.trainable_variables)
    _write_companions(folder, "bert_config.json", config)
    return tf.train.Checkpoint(model=pretrainer, optimizer=optimizer).save(f"{folder}/ckpt")


def _create_tf_models_encoder(encoder_class, config, weights):
    encoder = encoder_class(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        max_sequence_length=config.max_position_embeddings,
        type_vocab_size=config.type_vocab_size,
        inner_dim=config.intermediate_size,
    )
    encoder(encoder.inputs)
    # Keras has the weights in the order of `create_weights`, with the heads as an axis of their own.
    arrays = [array for name, array in weights.items() if name.startswith("bert/")]
    encoder.set_weights([array.reshape(weight.shape) for array, weight in zip(arrays, encoder.weights)])
    return encoder


def _write_companions(folder, config_name, config, **more):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{config_name}", "w") as file:
        json.dump(dataclasses.asdict(config) | more, file)
    with open(f"{folder}/vocab.txt", "w") as file:
        file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxy"]) + "\n")


FORMATS = {
    "google": write_google,
    "hugging_face": write_hugging_face,
    "hugging_face_encoder": lambda folder, weights: write_hugging_face(folder, weights, prefix=""),
    "tf_models": write_tf_models,
    "tf_models_v2": lambda folder, weights: write_tf_models(
        folder, weights, encoder_class=networks.BertEncoderV2, key="encoder"
    ),
    "tf_models_pretrainer": write_tf_models_pretrainer,
}
FORMATS_WITH_LANGUAGE_MODEL = ("google", "hugging_face", "hugging_face_encoder", "tf_models_pretrainer")
