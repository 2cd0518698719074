import pathlib

import numpy as np
import pytest
import tensorflow as tf

from back_translate.t2t_checkpoint import read_checkpoint
from back_translate.transformer import Noise, Transformer, TransformerConfig, weight_shapes
from tests.back_translate import transformer_numpy

SOURCES = [[5, 9, 3, 28, 1], [7, 1]]
TARGETS = [[4, 4, 17], [21, 1, 0]]
HEADS = 4


def write_checkpoint(path, variables):
    """A checkpoint with plain variable names, as TensorFlow 1 wrote them."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        stored = [tf.compat.v1.get_variable(name, initializer=array) for name, array in variables.items()]
        session.run(tf.compat.v1.global_variables_initializer())
        return tf.compat.v1.train.Saver(stored).save(session, str(path), global_step=500_000)


@pytest.fixture(scope="module")
def variables():
    return transformer_numpy.random_variables(np.random.default_rng(0))


@pytest.fixture(scope="module")
def checkpoint(variables, tmp_path_factory):
    """A training checkpoint: with the optimizer's slots and a counter."""
    slots = {f"training/{name}/Adam": np.zeros_like(array) for name, array in variables.items()}
    return write_checkpoint(
        tmp_path_factory.mktemp("t2t") / "model.ckpt", variables | slots | {"global_step": np.int64(500_000)}
    )


@pytest.fixture(scope="module")
def model(checkpoint):
    return Transformer(*read_checkpoint(checkpoint, HEADS))


def pad(rows):
    return tf.ragged.constant(rows, dtype=tf.int32).to_tensor()


def test_logits_equal_an_independent_computation(model, variables):
    logits = model.decode(model.encode(pad(SOURCES)), pad(SOURCES), pad(TARGETS))
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS)):
        target = [number for number in target if number]
        expected = transformer_numpy.logits(variables, source, target, HEADS)
        np.testing.assert_allclose(logits[row, : len(target)], expected, atol=1e-4)


def test_the_target_language_is_a_row_of_its_table(checkpoint, variables):
    model = Transformer(*read_checkpoint(checkpoint, HEADS, target_space_id=3))
    logits = model.decode(model.encode(pad(SOURCES[:1])), pad(SOURCES[:1]), pad(TARGETS[:1]))
    expected = transformer_numpy.logits(variables, SOURCES[0], TARGETS[0], HEADS, target_space_id=3)
    np.testing.assert_allclose(logits[0], expected, atol=1e-4)


def test_sizes_are_found_in_the_checkpoint(model):
    assert model.config == TransformerConfig(29, 16, 2, 2, HEADS, 24)


def test_more_than_ten_shards_come_in_numeric_order(tmp_path):
    variables = transformer_numpy.random_variables(np.random.default_rng(1), layers=1, num_shards=16)
    config, weights = read_checkpoint(write_checkpoint(tmp_path / "model.ckpt", variables), 2)
    model = Transformer(config, weights)
    logits = model.decode(model.encode(pad(SOURCES[:1])), pad(SOURCES[:1]), pad(TARGETS[:1]))
    expected = transformer_numpy.logits(variables, SOURCES[0], TARGETS[0], 2)
    np.testing.assert_allclose(logits[0], expected, atol=1e-4)


def test_every_weight_is_counted():
    for size, filters in ((512, 2048), (1024, 4096)):  # transformer_base and transformer_big, 32,768 subwords
        feed_forward, norm = 2 * size * filters + filters + size, 2 * size
        encoder_layer, decoder_layer = 4 * size**2 + feed_forward + 2 * norm, 8 * size**2 + feed_forward + 3 * norm
        expected = (32_768 + 32) * size + 6 * encoder_layer + 6 * decoder_layer + 2 * norm
        shapes = weight_shapes(TransformerConfig(32_768, size, 6, 6, size // 64, filters))
        assert sum(np.prod(shape) for shape in shapes.values()) == expected


def test_a_missing_variable_is_named(variables, tmp_path):
    name = "transformer/body/decoder/layer_1/ffn/conv2/bias"
    path = write_checkpoint(tmp_path / "model.ckpt", {key: array for key, array in variables.items() if key != name})
    with pytest.raises(ValueError, match=f"model.ckpt-500000 lacks the variable {name}"):
        read_checkpoint(path, HEADS)


def test_a_variable_of_another_shape_is_named(variables, tmp_path):
    name = "transformer/body/decoder/layer_1/ffn/conv2/bias"
    path = write_checkpoint(tmp_path / "model.ckpt", variables | {name: np.zeros(7, np.float32)})
    with pytest.raises(ValueError, match=rf"{name} has shape \(7,\), expected \(16,\)"):
        read_checkpoint(path, HEADS)


def test_other_checkpoints_are_refused(tmp_path):
    path = write_checkpoint(tmp_path / "model.ckpt", {"bert/embeddings": np.zeros([2, 2], np.float32)})
    with pytest.raises(ValueError, match="expected a tensor2tensor Transformer with shared embeddings"):
        read_checkpoint(path, HEADS)
    with pytest.raises(ValueError, match="no_such cannot be read .*: give the prefix of a whole TensorFlow checkpoint"):
        read_checkpoint(str(tmp_path / "no_such"), HEADS)


@pytest.mark.parametrize("ending", [".index", ".data-00000-of-00001"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_a_damaged_checkpoint_is_named(variables, tmp_path, ending, damage):
    prefix = write_checkpoint(tmp_path / "model.ckpt", variables)
    path = pathlib.Path(prefix + ending)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes({"flipped": content, "cut": content[: len(content) // 2], "empty": b""}[damage])
    with pytest.raises(ValueError, match="model.ckpt-500000 cannot be read .*: give the prefix of a whole"):
        read_checkpoint(prefix, HEADS)


def test_a_checkpoint_with_numbers_that_are_not_finite_is_refused(variables, tmp_path):
    name = next(name for name in variables if name.endswith("encoder/layer_0/ffn/conv1/bias"))
    changed = variables | {name: np.full_like(variables[name], np.inf)}
    with pytest.raises(ValueError, match="encoder/layer_0/ffn/conv1/bias has .*expected finite numbers"):
        read_checkpoint(write_checkpoint(tmp_path / "model.ckpt", changed), HEADS)


def test_heads_must_divide_the_width(checkpoint):
    with pytest.raises(ValueError, match="hidden_size=16: expected an even multiple of num_heads=3"):
        read_checkpoint(checkpoint, 3)


def test_dropout_depends_on_seed_and_step_only():
    model = Transformer(TransformerConfig(29, 16, 1, 1, 2, 24), dropout=0.5)
    encode = lambda seed, step: model.encode(pad(SOURCES), Noise(seed, step)).numpy()  # noqa: E731
    np.testing.assert_array_equal(encode(0, 1), encode(0, 1))
    assert np.abs(encode(0, 1) - encode(0, 2)).max() > 0.1
    assert np.abs(encode(0, 1) - encode(1, 1)).max() > 0.1
    assert np.abs(encode(0, 1) - model.encode(pad(SOURCES)).numpy()).max() > 0.1
