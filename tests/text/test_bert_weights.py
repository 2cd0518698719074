"""Published weights: every format gives the numbers that NumPy computes from the same arrays."""

import dataclasses
import filecmp
import functools
import json
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf
from official.nlp.modeling.layers import MaskedLM

from tests.text import bert_numpy, small_bert
from tests.text.small_bert import CONFIG, FORMATS, NUM_HEADS
from text import bert_weights
from text.models.bert import BertConfig, Encoder, create_bert, encoder_inputs

WEIGHTS = small_bert.create_weights()
FEATURES = small_bert.create_features()

every_format = pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)


@functools.cache
def create_small_network(**options):
    return create_bert(CONFIG, num_classes=3, max_seq_length=16, **options)


@functools.cache
def create_language_model():
    ids = tf.keras.Input([None], dtype=tf.int32)
    encoder = Encoder(CONFIG)
    head = MaskedLM(encoder.get_embedding_table(), activation="gelu", name="cls/predictions")
    hidden = encoder(encoder_inputs(ids, tf.zeros_like(ids), ids != 0))["sequence_output"]
    return tf.keras.Model(ids, head(hidden, masked_positions=tf.zeros_like(ids[:, :1])))


def reset(model):
    """Makes all weights equal, since the tests share the models."""
    model.set_weights([np.full_like(array, 0.5) for array in model.get_weights()])
    return model


@pytest.fixture
def network():
    return reset(create_small_network())


@pytest.fixture
def mean_network():
    return reset(create_small_network(pooling="mean"))


@pytest.fixture
def language_model():
    """An encoder with a masked-language-model head on it, as one Keras model."""
    return reset(create_language_model())


def pooled_output(network, features=FEATURES):
    return tf.keras.Model(network.inputs, network.get_layer("head_dropout").input)(features).numpy()


def expected_pooled(weights=WEIGHTS):
    return bert_numpy.pooled(weights, FEATURES["ids"], FEATURES["type_ids"], NUM_HEADS)


@every_format
def test_every_format_gives_the_forward_pass_of_numpy(write, network, tmp_path):
    report = bert_weights.load_weights(network, write(tmp_path, WEIGHTS))
    np.testing.assert_allclose(pooled_output(network), expected_pooled(), atol=1e-5)
    assert report.initial == ()


@every_format
def test_every_format_has_a_configuration_and_a_vocabulary_beside_it(write, tmp_path):
    init_checkpoint = write(tmp_path, WEIGHTS)
    assert BertConfig.read(bert_weights.find_config(init_checkpoint)) == CONFIG
    assert bert_weights.find_vocab(init_checkpoint) == str(tmp_path / "vocab.txt")


def test_all_hidden_states_and_the_mean_pooling_match_numpy(mean_network, tmp_path):
    bert_weights.load_weights(mean_network, small_bert.write_google(tmp_path, WEIGHTS))
    arguments = WEIGHTS, FEATURES["ids"], FEATURES["type_ids"], NUM_HEADS
    np.testing.assert_allclose(pooled_output(mean_network), bert_numpy.mean(*arguments), atol=1e-5)
    inputs = encoder_inputs(FEATURES["ids"], FEATURES["type_ids"], FEATURES["ids"] != 0)
    hidden = mean_network.get_layer("encoder")(inputs)["sequence_output"]
    np.testing.assert_allclose(hidden, bert_numpy.hidden_states(*arguments), atol=1e-5)


def test_a_forgotten_transpose_would_be_seen():
    for name, array in WEIGHTS.items():
        if name.endswith("kernel") and name.startswith("bert") and array.shape[0] == array.shape[1]:
            changed = expected_pooled(WEIGHTS | {name: array.T})
            assert np.abs(changed - expected_pooled()).max() > 1e-2, name


@pytest.mark.parametrize("dtype, tolerance", [("F16", 1e-2), ("BF16", 1e-1)])
def test_half_precision_is_read_to_its_last_bit(dtype, tolerance, tmp_path):
    weights = bert_weights.read_weights(small_bert.write_hugging_face(tmp_path, WEIGHTS, dtype=dtype))
    for name, array in WEIGHTS.items():
        if dtype == "F16":
            expected = array.astype(np.float16).astype(np.float32)
        else:
            expected = (array.view(np.uint32) & 0xFFFF0000).view(np.float32)
        np.testing.assert_array_equal(weights[name], expected)
        assert weights[name].dtype == np.float32
    assert np.abs(expected_pooled(weights) - expected_pooled()).max() < tolerance


@pytest.mark.parametrize("name", small_bert.FORMATS_WITH_LANGUAGE_MODEL)
def test_the_head_of_the_language_model_is_read_and_filled(name, language_model, tmp_path):
    init_checkpoint = FORMATS[name](tmp_path, WEIGHTS)
    weights = bert_weights.read_weights(init_checkpoint)
    report = bert_weights.load_weights(language_model, init_checkpoint)
    head = [key for key in WEIGHTS if key.startswith("cls/predictions/")]
    assert len(head) == 5 and report.initial == ()
    for key in head:
        np.testing.assert_array_equal(weights[key], WEIGHTS[key])
        np.testing.assert_array_equal(bert_weights.named_variables(language_model)[key], WEIGHTS[key])


def test_what_is_not_used_is_reported_without_the_optimizer(network, tmp_path):
    report = bert_weights.load_weights(network, small_bert.write_google(tmp_path, WEIGHTS))
    assert report.unused == tuple(sorted(name for name in WEIGHTS if name.startswith("cls/")))


@pytest.mark.slow
@every_format
def test_the_state_of_an_optimizer_is_not_taken_for_weights(write, tmp_path):
    names = bert_weights.read_weights(write(tmp_path, WEIGHTS)).keys()
    assert names - WEIGHTS.keys() <= {"cls/predictions/decoder/weight"}


def test_the_pooler_is_unused_where_the_mean_is_taken(mean_network, tmp_path):
    report = bert_weights.load_weights(mean_network, small_bert.write_google(tmp_path, WEIGHTS))
    assert "bert/pooler/dense/kernel" in report.unused


def test_all_missing_weights_are_named_at_once_and_nothing_is_changed(network, tmp_path):
    before = network.get_weights()
    init_checkpoint = small_bert.write_google(tmp_path, small_bert.without(WEIGHTS, "layer_1/intermediate"))
    names = "bert/encoder/layer_1/intermediate/dense/kernel, bert/encoder/layer_1/intermediate/dense/bias"
    with pytest.raises(ValueError, match=f"{init_checkpoint} lacks 2 weights of the encoder: {names}"):
        bert_weights.load_weights(network, init_checkpoint)
    for value, weight in zip(before, network.get_weights()):
        np.testing.assert_array_equal(value, weight)


@pytest.mark.parametrize("write", [small_bert.write_google, small_bert.write_hugging_face])
def test_weights_of_another_size_are_refused_with_both_shapes(write, network, tmp_path):
    config = dataclasses.replace(CONFIG, vocab_size=31, max_position_embeddings=20)
    init_checkpoint = write(tmp_path, small_bert.create_weights(config), config)
    message = r"word_embeddings has \[31, 12\], expected \[30, 12\]; .*position_embeddings has \[20, 12\], expected"
    with pytest.raises(ValueError, match=message):
        bert_weights.load_weights(network, init_checkpoint)


def test_attention_of_another_width_is_refused_even_if_the_number_of_elements_fits(network, tmp_path):
    name = "bert/encoder/layer_0/attention/self/query/kernel"
    init_checkpoint = small_bert.write_google(tmp_path, WEIGHTS | {name: WEIGHTS[name].reshape(24, 6)})
    with pytest.raises(ValueError, match=r"query/kernel has \[24, 6\], expected \[12, 12\]"):
        bert_weights.load_weights(network, init_checkpoint)


def test_a_pooler_that_the_checkpoint_lacks_keeps_its_initial_values_and_is_reported(network, mean_network, tmp_path):
    init_checkpoint = small_bert.write_hugging_face(tmp_path, small_bert.without(WEIGHTS, "pooler"))
    pooler = network.get_layer("encoder").pooler_layer
    before = pooler.get_weights()
    report = bert_weights.load_weights(network, init_checkpoint)
    assert report.initial == ("bert/pooler/dense/kernel", "bert/pooler/dense/bias")
    for value, weight in zip(before, pooler.get_weights()):
        np.testing.assert_array_equal(value, weight)
    assert bert_weights.load_weights(mean_network, init_checkpoint).initial == ()


def test_half_a_pooler_is_an_error(network, tmp_path):
    init_checkpoint = small_bert.write_hugging_face(tmp_path, small_bert.without(WEIGHTS, "pooler/dense/bias"))
    with pytest.raises(ValueError, match="lacks 1 weights of the encoder: bert/pooler/dense/bias"):
        bert_weights.load_weights(network, init_checkpoint)


def test_saved_weights_are_loaded_again(network, language_model, tmp_path):
    folder = small_bert.write_hugging_face(tmp_path / "published", WEIGHTS)
    bert_weights.load_weights(language_model, folder)
    prefix = bert_weights.save_weights(language_model, CONFIG, f"{folder}/vocab.txt", str(tmp_path / "saved"))
    for init_checkpoint in (prefix, str(tmp_path / "saved")):
        report = bert_weights.load_weights(reset(network), init_checkpoint)
        np.testing.assert_allclose(pooled_output(network), expected_pooled(), atol=1e-5)
        assert report.initial == () and all(name.startswith("cls/predictions/") for name in report.unused)
        assert BertConfig.read(bert_weights.find_config(init_checkpoint)) == CONFIG
        assert filecmp.cmp(bert_weights.find_vocab(init_checkpoint), f"{folder}/vocab.txt", shallow=False)


def test_saved_weights_have_the_names_and_shapes_of_google(language_model, tmp_path):
    folder = small_bert.write_hugging_face(tmp_path / "published", WEIGHTS)
    prefix = bert_weights.save_weights(language_model, CONFIG, f"{folder}/vocab.txt", str(tmp_path / "saved"))
    expected = {name: list(array.shape) for name, array in small_bert.without(WEIGHTS, "seq_relationship").items()}
    assert dict(tf.train.list_variables(prefix)) == expected


def test_weights_reach_every_replica_and_are_saved_from_them(tmp_path):
    init_checkpoint = small_bert.write_google(tmp_path, WEIGHTS)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        network = create_small_network.__wrapped__()
        bert_weights.load_weights(network, init_checkpoint)
        bert_weights.save_weights(network, CONFIG, tmp_path / "vocab.txt", str(tmp_path / "saved"))
    name = "bert/encoder/layer_0/attention/output/dense/kernel"
    for value in bert_weights.named_variables(network)[name].values:
        np.testing.assert_array_equal(value.numpy().reshape(12, 12), WEIGHTS[name])
    np.testing.assert_array_equal(bert_weights.read_weights(str(tmp_path / "saved"))[name], WEIGHTS[name])


def test_a_checkpoint_of_several_encoders_is_refused(network, mean_network, tmp_path):
    path = tf.train.Checkpoint(network=network, average=mean_network).write(str(tmp_path / "checkpoint"))
    with pytest.raises(ValueError, match="holds several encoders"):
        bert_weights.read_weights(path)


def test_a_model_of_several_encoders_is_refused(network, mean_network):
    model = types.SimpleNamespace(weights=network.weights + mean_network.weights)
    with pytest.raises(ValueError, match=r"The model holds several encoders \(bert/embeddings/word_embeddings comes"):
        bert_weights.named_variables(model)


def test_a_checkpoint_of_the_trained_classifier_gives_its_encoder(network, tmp_path):
    bert_weights.load_weights(network, small_bert.write_google(tmp_path / "published", WEIGHTS))
    path = tf.train.Checkpoint(network=network).write(str(tmp_path / "checkpoint"))
    assert bert_weights.load_weights(reset(network), path).unused == ("logits/bias", "logits/kernel")
    np.testing.assert_allclose(pooled_output(network), expected_pooled(), atol=1e-5)


@pytest.mark.parametrize("content, message", [(b"version https://git-lfs", "is not a safe"), (None, "were expected")])
def test_a_broken_download_is_named(content, message, tmp_path):
    path = pathlib.Path(small_bert.write_hugging_face(tmp_path, WEIGHTS), "model.safetensors")
    path.write_bytes(content or path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"model.safetensors .*{message}.*: download it again"):
        bert_weights.read_weights(str(tmp_path))


def write_safetensors(path, header, data=bytes(16)):
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + data)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


BAD_HEADERS = {
    "not JSON": b"{...}",
    "not UTF-8": b'{"\xe9": 1}',
    "nested without end": b"[" * 100_000,
    "a list": [1, 2],
    "an entry that is a number": {"a": 1},
    "an entry without a shape": {"a": {"dtype": "F32", "data_offsets": [0, 16]}},
    "a type that is a number": {"a": entry() | {"dtype": 4}},
    "an unknown type": {"a": entry("F1")},
    "a shape that is a text": {"a": entry() | {"shape": "24"}},
    "a negative shape": {"a": entry(shape=[-1], offsets=[0, 16])},
    "a shape that does not fit": {"a": entry(shape=[5], offsets=[0, 16])},
    "a shape beyond reason": {"a": entry(shape=[2**62, 4], offsets=[0, 16])},
    "33 dimensions": {"a": entry(shape=[1] * 32 + [4], offsets=[0, 16])},
    "three offsets": {"a": entry() | {"data_offsets": [0, 8, 16]}},
    "a negative offset": {"a": entry(offsets=[-8, 0]), "b": entry(shape=[4], offsets=[0, 16])},
    "an overlap": {"a": entry(), "b": entry(shape=[3], offsets=[4, 16])},
    "a gap": {"a": entry(offsets=[0, 8]), "b": entry(shape=[1], offsets=[12, 16])},
    "an offset that is True": {"a": entry() | {"data_offsets": [False, 16]}},
    "a name twice": b'{"a": 1, "a": 2}',
    "other information that is a text": {"__metadata__": "pt", "a": entry(shape=[4], offsets=[0, 16])},
}


@pytest.mark.parametrize("kind", BAD_HEADERS)
def test_a_safetensors_header_must_describe_each_byte_once(kind, tmp_path):
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"b": entry(offsets=[8, 16]), "a": entry()})
    assert list(bert_weights.read_safetensors(str(path))) == ["b", "a"]
    write_safetensors(path, BAD_HEADERS[kind])
    with pytest.raises(ValueError, match="model.safetensors.*download it again"):
        bert_weights.read_safetensors(str(path))


@pytest.mark.parametrize("write", [small_bert.write_google, small_bert.write_hugging_face, small_bert.write_tf_models])
def test_weights_that_are_not_finite_are_refused(write, tmp_path):
    name = "bert/pooler/dense/bias"
    init_checkpoint = write(tmp_path, WEIGHTS | {name: np.full_like(WEIGHTS[name], np.nan)})
    with pytest.raises(ValueError, match=f"{name} holds something else than finite numbers: download it again"):
        bert_weights.read_weights(init_checkpoint)


@pytest.mark.parametrize("damage", ["cut index", "flipped index", "flipped data", "no data", "empty index"])
@pytest.mark.parametrize("write", [small_bert.write_google, small_bert.write_tf_models])
def test_a_damaged_checkpoint_is_named(write, damage, tmp_path):
    prefix = write(tmp_path, WEIGHTS)
    kind, part = damage.split()
    path = pathlib.Path(f"{prefix}.index" if part == "index" else f"{prefix}.data-00000-of-00001")
    content = bytearray(path.read_bytes())
    content[2 if part == "data" else len(content) // 2] ^= 1  # not all data are read: an optimizer's are not
    {
        "cut": lambda: path.write_bytes(content[: len(content) // 2]),
        "flipped": lambda: path.write_bytes(content),
        "no": path.unlink,
        "empty": lambda: path.write_bytes(b""),
    }[kind]()
    with pytest.raises(ValueError, match=f"{prefix} cannot be read .*: download it again"):
        bert_weights.read_weights(prefix)


def test_a_weight_under_two_names_is_refused(tmp_path):
    array = np.zeros([2, 3], np.float32)
    arrays = {f"{prefix}embeddings.word_embeddings.weight": array for prefix in ("", "bert.")}
    small_bert.write_safetensors(tmp_path / "model.safetensors", arrays)
    with pytest.raises(ValueError, match="holds bert/embeddings/word_embeddings twice"):
        bert_weights.read_weights(str(tmp_path))


def test_a_place_without_exactly_one_checkpoint_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a TensorFlow checkpoint, .*; 0 were found there"):
        bert_weights.read_weights(str(tmp_path))
    for name in ("a", "b"):
        tf.train.Checkpoint().write(str(tmp_path / name))
    with pytest.raises(ValueError, match="2 were found there"):
        bert_weights.read_weights(str(tmp_path))


def test_a_missing_companion_is_named_with_the_setting_that_helps(tmp_path):
    with pytest.raises(ValueError, match=rf"No bert_config.json or config.json lies in {tmp_path}: .*bert_config_file"):
        bert_weights.find_config(str(tmp_path / "bert_model.ckpt"))
    with pytest.raises(ValueError, match=rf"No vocab.txt lies in {tmp_path}: say with vocab_file"):
        bert_weights.find_vocab(str(tmp_path))
