"""The text networks: their size, what they train, and dropout that a checkpoint can resume."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from official.nlp.modeling.networks import BertEncoderV2

from tests.text.small_bert import CONFIG, create_features
from text import models
from text.config import Config
from text.datasets.source import Facts
from text.models.bag_of_words import WIDTH, create_bag_of_words
from text.models.bert import BertConfig, Encoder, create_bert
from text.models.dropout import Dropout
from utils.settings import ObjectiveConfig
from utils.uda_model import UDAModel

control_status_ctx = tf.__internal__.autograph.control_status_ctx

FEATURES = create_features()
LABELS = np.array([0, 1, 2, 0])
FACTS = Facts("csv", ("a", "b", "c"))
# Rates that differ, and weights large enough for any mask to show.
DROPOUT_CONFIG = dataclasses.replace(
    CONFIG, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.4, initializer_range=0.2
)


def create_small_network(config=DROPOUT_CONFIG, **options):
    tf.keras.utils.set_random_seed(0)
    return create_bert(config, num_classes=3, max_seq_length=16, **options)


def create_small_bag(**options):
    tf.keras.utils.set_random_seed(0)
    return create_bag_of_words(CONFIG.vocab_size, num_classes=3, **options)


every_network = pytest.mark.parametrize(
    "create", [create_small_network, create_small_bag], ids=["bert", "bag_of_words"]
)


def create_step(network, jit_compile=False):
    """One update by SGD, compiled; returns the loss."""
    optimizer = tf.keras.optimizers.SGD(0.1, jit_compile=False)
    optimizer.build(network.trainable_variables)

    @tf.function(jit_compile=jit_compile)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, network(FEATURES, training=True))
        variables = network.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return tf.reduce_mean(loss)

    return step


def dropout_layers(network):
    return [layer for layer in network.submodules if isinstance(layer, Dropout)]


def padded(features, length):
    return {name: np.pad(values, [(0, 0), (0, length - values.shape[1])]) for name, values in features.items()}


@pytest.fixture(scope="module")
def network():
    """For tests that change nothing but the count of dropout masks."""
    return create_small_network()


@pytest.mark.parametrize("width, layers, total", [(128, 2, 4_385_920), (256, 4, 11_170_560)], ids=["tiny", "mini"])
def test_small_berts_have_the_published_number_of_parameters(width, layers, total):
    encoder = Encoder(BertConfig(30522, width, layers, num_attention_heads=width // 64, intermediate_size=4 * width))
    assert sum(int(np.prod(weight.shape)) for weight in encoder.trainable_weights) == total


def test_the_random_transformer_is_bert_base_with_6_layers_8_heads_and_dropout_of_a_fifth(monkeypatch):
    monkeypatch.setattr(models, "create_bert", lambda encoder_config, *arguments, **options: encoder_config)
    assert models.create_network(Config(model_name="transformer"), FACTS, 30522) == BertConfig(
        vocab_size=30522,
        hidden_size=768,
        num_hidden_layers=6,
        num_attention_heads=8,
        intermediate_size=3072,
        hidden_act="gelu",
        hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.2,
        max_position_embeddings=512,
        type_vocab_size=2,
        initializer_range=0.02,
    )


SETTINGS = {"max_seq_length": 16, "pooling": "mean", "model_dropout": 0.25, "trainable_layers": 1, "seed": 5}


def test_the_settings_of_a_run_reach_its_bert(tmp_path):
    CONFIG.write(tmp_path / "bert_config.json")
    by_file = Config(bert_config_file=str(tmp_path / "bert_config.json"), **SETTINGS)
    for config in (by_file, Config(init_checkpoint=str(tmp_path / "bert_model.ckpt"), **SETTINGS)):
        network = models.create_network(config, FACTS, CONFIG.vocab_size)
        assert network(FEATURES).shape == (4, 3) and network.get_layer("encoder").seed == 5
        assert {layer.rate for layer in dropout_layers(network)} == {0.1, 0.25}
        assert not [weight.name for weight in network.weights if "pooler" in weight.name]
        assert len(network.trainable_weights) == 16 + 2


def test_the_pooling_is_what_the_encoder_wants_unless_another_is_given(tmp_path):
    CONFIG.write(tmp_path / "bert_config.json")
    sizes = {"bert_config_file": str(tmp_path / "bert_config.json"), "max_seq_length": 16}
    cases = {("minilm", "auto"): False, ("bert-base", "auto"): True, ("minilm", "cls"): True, ("", "auto"): True}
    for (init_checkpoint, pooling), has_pooler in cases.items():
        config = Config(init_checkpoint=init_checkpoint, pooling=pooling, **sizes)
        network = models.create_network(config, FACTS, CONFIG.vocab_size)
        assert any("pooler" in weight.name for weight in network.weights) == has_pooler, (init_checkpoint, pooling)


def test_the_settings_of_a_run_reach_its_bag_of_words():
    config = Config(model_name="bag_of_words", model_dropout=0.25, seed=5)
    network = models.create_network(config, FACTS, 30)
    assert network(FEATURES).shape == (4, 3) and network.get_layer("mean_embedding").seed == 5
    assert [layer.rate for layer in dropout_layers(network)] == [0.25]


def test_which_networks_take_pre_trained_weights():
    assert {name: entry.load_weights is not None for name, entry in models.MODELS.items()} == {
        "bert": True,
        "transformer": False,
        "bag_of_words": False,
    }
    with pytest.raises(ValueError, match="model_name=bag_of_words has its own size and no pre-trained weights: use"):
        Config(model_name="bag_of_words", init_checkpoint="data/bert")


def test_a_configuration_is_read_as_it_was_written(tmp_path):
    DROPOUT_CONFIG.write(tmp_path / "bert_config.json")
    assert BertConfig.read(tmp_path / "bert_config.json", 30) == DROPOUT_CONFIG


def test_a_vocabulary_larger_than_the_embedding_table_is_refused(tmp_path):
    CONFIG.write(tmp_path / "bert_config.json")
    with pytest.raises(ValueError, match="The vocabulary has 31 word pieces, but .*config.json says vocab_size=30"):
        BertConfig.read(tmp_path / "bert_config.json", 31)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": None, "hidden_act": None}, "config.json lacks hidden_size, hidden_act"),
        ({"hidden_act": "swish"}, "hidden_act='swish': expected one of 'gelu'"),
        ({"num_attention_heads": 5}, "hidden_size=12 is not a multiple of num_attention_heads=5"),
        ({"model_type": "roberta"}, "model_type='roberta', but this encoder only knows 'bert'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05, but this encoder only knows 1e-12"),
        (
            {"num_hidden_layers": 2**63},
            "config.json: num_hidden_layers=9223372036854775808: expected a whole number from",
        ),
        ({"num_attention_heads": 0}, "config.json: num_attention_heads=0: expected a whole number from 1"),
        ({"vocab_size": "30"}, "config.json: vocab_size='30': expected a whole number"),
        ({"hidden_act": ["gelu"]}, "config.json: hidden_act=.* expected a text"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob=1.0: expected at least 0 and less than 1"),
        ({"hidden_size": 60_000, "num_attention_heads": 1}, "tells of .* weights: expected at most 4,000,000,000"),
    ],
)
def test_a_configuration_of_another_kind_is_refused(changes, message, tmp_path):
    values = {name: value for name, value in (dataclasses.asdict(CONFIG) | changes).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message):
        BertConfig.read(tmp_path / "config.json")


@pytest.mark.parametrize("content", [b"[]", b"3", b"{}", b"[" * 100_000, b"{", b'{"vocab_size": "\xe9"}', b""])
def test_a_configuration_file_of_the_wrong_shape_is_named(content, tmp_path):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match="config.json"):
        BertConfig.read(str(tmp_path / "config.json"))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_seq_length": 17}, "max_seq_length=17: the encoder has 16 positions at most"),
        ({"pooling": "max"}, "pooling='max': expected one of 'cls', 'mean'"),
        ({"trainable_layers": 3}, r"trainable_layers=3: expected -1 \(everything\) or 0 to 2"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        create_bert(CONFIG, **({"num_classes": 3, "max_seq_length": 16} | options))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_does_not_matter_up_to_the_last_position(pooling):
    network = create_small_network(pooling=pooling)
    logits = network(FEATURES)
    assert logits.shape == (4, 3) and logits.dtype == tf.float32
    np.testing.assert_allclose(network(padded(FEATURES, 16)), logits, atol=1e-6)


def test_the_encoder_is_built_without_autograph(monkeypatch):
    """AutoGraph would rewrite all of tf-models-official's layers first: most of the time to build a network."""
    call, found = BertEncoderV2.call, []

    def observed_call(self, inputs):
        found.append((tf.is_symbolic_tensor(inputs["input_word_ids"]), control_status_ctx().status.name))
        return call(self, inputs)

    monkeypatch.setattr(BertEncoderV2, "call", observed_call)
    create_small_network()
    assert (True, "DISABLED") in found
    assert {status for _, status in found} == {"DISABLED"}


def test_both_inputs_matter(network):
    for name in FEATURES:
        changed = FEATURES | {name: np.where(FEATURES["ids"] != 0, (FEATURES[name] + 1) % 2, 0).astype(np.int32)}
        assert np.abs(network(changed) - network(FEATURES)).max(axis=1).min() > 1e-4, name


def test_weights_start_as_bert_starts_them():
    config = dataclasses.replace(CONFIG, vocab_size=500, hidden_size=60, initializer_range=0.03)
    for weight in create_small_network(config).weights:
        if weight.name.startswith("logits/kernel"):
            assert 0 < np.abs(weight).max() <= 0.04
        elif "kernel" in weight.name or "embeddings:" in weight.name:
            limit = 0.06  # truncated at two deviations
            assert 0 < np.abs(weight).max() <= limit, weight.name
        elif weight.dtype.is_floating:
            assert (weight.numpy() == ("gamma" in weight.name)).all(), weight.name


def test_every_dropout_has_its_rate_and_none_is_of_keras(network):
    rates = sorted(layer.rate for layer in dropout_layers(network))
    assert rates == [0.1] + [0.3] * 5 + [0.4] * 2  # head; embeddings and two for each layer; attention of each layer
    encoder = network.get_layer("encoder")
    assert {layer._attention_layer._dropout_layer.rate for layer in encoder.transformer_layers} == {0.4}
    assert not [layer for layer in network.submodules if isinstance(layer, tf.keras.layers.Dropout) and layer.rate > 0]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_option_sets_all_rates_but_the_heads(dropout):
    assert sorted(layer.rate for layer in dropout_layers(create_small_network(dropout=dropout))) == sorted(
        [0.1] + [dropout] * 7
    )


def test_each_dropout_layer_makes_a_difference_in_training():
    network = create_small_network()
    layers, counter, expected = dropout_layers(network), network.get_layer("encoder").mask_counter, network(FEATURES)
    rates = [layer.rate for layer in layers]
    for layer in layers:
        layer.rate = 0.0
    np.testing.assert_array_equal(network(FEATURES, training=True), expected)
    for num_masks, (layer, rate) in enumerate(zip(layers, rates), 1):
        layer.rate = rate
        assert np.abs(network(FEATURES, training=True) - expected).max() > 1e-3
        assert counter.numpy() == num_masks
        layer.rate = 0.0


def test_two_calls_in_one_step_draw_different_masks_and_evaluation_draws_none(network):
    counter = network.get_layer("encoder").mask_counter

    @tf.function
    def call_twice():
        return network(FEATURES, training=True), network(FEATURES, training=True)

    before = counter.numpy()
    first, second = call_twice()
    assert (first != second).numpy().all() and counter.numpy() == before + 2 * 8
    np.testing.assert_array_equal(network(FEATURES), network(FEATURES))
    assert counter.numpy() == before + 2 * 8


def test_masks_depend_on_the_seed_and_the_count_only(network):
    other = create_small_network(seed=1)
    for each in (network, other):
        each.get_layer("encoder").mask_counter.assign(5)
    first, different = network(FEATURES, training=True), other(FEATURES, training=True)
    assert (first != different).numpy().all()
    network.get_layer("encoder").mask_counter.assign(5)
    np.testing.assert_array_equal(network(FEATURES, training=True), first)


def test_dropout_keeps_the_mean_and_drops_at_its_rate():
    values = Dropout(0.3, lambda: tf.constant([1, 2]))(tf.ones([200, 200]), training=True).numpy()
    assert abs((values == 0).mean() - 0.3) < 0.01
    np.testing.assert_allclose(values[values != 0], 1 / 0.7, rtol=1e-6)


@pytest.mark.slow
@every_network
def test_resumed_training_equals_uninterrupted_training(create, tmp_path):
    network = create()
    step = create_step(network)
    step(), step()
    path = tf.train.Checkpoint(network=network).write(str(tmp_path / "checkpoint"))
    expected = [step().numpy(), step().numpy()]
    restored = create()
    tf.train.Checkpoint(network=restored).read(path).assert_consumed()
    step = create_step(restored)
    assert [step().numpy(), step().numpy()] == expected
    for weight, value in zip(restored.get_weights(), network.get_weights()):
        np.testing.assert_array_equal(weight, value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "create",
    [lambda: create_small_network(dataclasses.replace(DROPOUT_CONFIG, num_hidden_layers=1)), create_small_bag],
    ids=["bert", "bag_of_words"],
)
def test_training_compiled_with_xla_moves_every_weight_and_resumes(create, tmp_path):
    network = create()
    before, step = network.get_weights(), create_step(network, jit_compile=True)
    step()
    for old, weight in zip(before, network.weights):
        assert np.isfinite(weight).all() and (old != weight.numpy()).any(), weight.name
    path = tf.train.Checkpoint(network=network).write(str(tmp_path / "checkpoint"))
    expected = step().numpy()
    assert step().numpy() != expected
    tf.train.Checkpoint(network=network).read(path).assert_consumed()
    assert step().numpy() == expected


@every_network
def test_replicas_draw_different_masks_and_resume_them(create, tmp_path):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        network, restored = create(), create()

    @tf.function
    def run(network):
        return strategy.run(lambda: network(FEATURES, training=True))

    run(network)
    path = tf.train.Checkpoint(network=network).write(str(tmp_path / "checkpoint"))
    first, second = strategy.experimental_local_results(run(network))
    assert (first != second).numpy().all()
    tf.train.Checkpoint(network=restored).read(path).assert_consumed()
    for value, expected in zip(strategy.experimental_local_results(run(restored)), (first, second)):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize(
    "policy, create, options",
    [
        ("mixed_float16", create_small_network, {"pooling": "cls"}),
        ("mixed_float16", create_small_network, {"pooling": "mean"}),
        ("mixed_bfloat16", create_small_network, {"pooling": "cls"}),
        ("mixed_float16", create_small_bag, {}),
        ("mixed_bfloat16", create_small_bag, {}),
    ],
)
def test_logits_are_float32_and_close_under_mixed_precision(policy, create, options):
    expected = create(**options)(FEATURES)
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        network = create(**options)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    logits = network(FEATURES)
    assert logits.dtype == tf.float32 and {weight.dtype for weight in network.trainable_weights} == {tf.float32}
    np.testing.assert_allclose(logits, expected, atol=3e-3)
    assert (logits != expected).numpy().any()
    assert np.isfinite(network(FEATURES, training=True)).all()


@pytest.mark.parametrize("pooling, trainable_layers", [("cls", 0), ("cls", 1), ("cls", 2), ("mean", 1)])
def test_only_the_top_layers_the_pooler_and_the_head_are_trained(pooling, trainable_layers):
    network = create_small_network(pooling=pooling, trainable_layers=trainable_layers)
    names = [weight.name for weight in network.trainable_weights]
    expected = {"layer_0/": 16 * (trainable_layers == 2), "layer_1/": 16 * (trainable_layers >= 1)}
    expected |= {"pooler": 2 * (pooling == "cls"), "logits": 2}
    assert {part: sum(part in name for name in names) for part in expected} == expected
    assert len(names) == sum(expected.values())


def test_without_pooler_there_are_no_weights_of_one():
    assert not [weight.name for weight in create_small_network(pooling="mean").weights if "pooler" in weight.name]


def num_products(network):
    """How many products of matrices a graph must make for the gradients of all trained weights."""

    @tf.function
    def compute_gradients():
        with tf.GradientTape() as tape:
            logits = network(FEATURES, training=True)
        gradients = tape.gradient(logits, network.trainable_variables)
        assert all(gradient is not None for gradient in gradients)
        return gradients

    graph = compute_gradients.get_concrete_function().graph
    needed = tf.compat.v1.graph_util.extract_sub_graph(
        graph.as_graph_def(), [output.op.name for output in graph.outputs]
    )
    return sum(node.op == "Einsum" for node in needed.node)


def test_every_trained_weight_gets_a_gradient_and_frozen_layers_cost_no_backpropagation(network):
    forward = 2 * 8  # each layer's four projections, two products of attention and two denses
    assert num_products(create_small_network(trainable_layers=0)) == forward
    assert num_products(network) > 2 * forward


@pytest.mark.slow
@pytest.mark.parametrize(
    "create", [lambda: create_small_network(trainable_layers=1), create_small_bag], ids=["bert", "bag_of_words"]
)
def test_the_moving_average_follows_each_weight_though_some_are_frozen(create):
    model = UDAModel(create, num_classes=3, objective=ObjectiveConfig(train_steps=10, ema_decay=0.5))
    model.compile(tf.keras.optimizers.SGD(0.1, jit_compile=False))
    before = [weight.numpy() for weight in model.network.weights]
    views = {"original": create_features(seed=1), "augmented": create_features(seed=2)}
    model.fit(tf.data.Dataset.from_tensors({"sup": FEATURES, "label": LABELS} | views), verbose=0)
    num_changed = 0
    for old, weight, average in zip(before, model.network.weights, model.average_network.weights):
        if weight.dtype.is_floating:
            np.testing.assert_allclose(average, 0.5 * old + 0.5 * weight.numpy(), atol=1e-6, err_msg=weight.name)
            num_changed += (old != weight.numpy()).any()
    assert num_changed == len(model.network.trainable_weights)


# ---- bag of words ---------------------------------------------------------------------------------------------------


def test_a_bag_of_words_is_the_mean_of_the_real_pieces_and_two_layers():
    network = create_small_bag()
    table, _, *dense = network.get_weights()
    table, dense = table.astype(np.float64), [array.astype(np.float64) for array in dense]
    means = np.stack([table[row[row != 0]].mean(axis=0) for row in FEATURES["ids"]])
    assert table.shape == (CONFIG.vocab_size, WIDTH) and means.shape == (4, WIDTH)
    logits = network(FEATURES)
    np.testing.assert_allclose(logits, np.maximum(means @ dense[0] + dense[1], 0) @ dense[2] + dense[3], atol=1e-6)
    assert logits.dtype == tf.float32 and np.ptp(logits, axis=0).min() > 1e-3


def test_a_bag_of_words_takes_any_length_and_minds_neither_padding_nor_order():
    network = create_small_bag()
    logits = network(FEATURES)
    np.testing.assert_allclose(network(padded(FEATURES, 600)), logits, atol=1e-6)
    flipped = FEATURES | {"ids": FEATURES["ids"][:, ::-1]}
    np.testing.assert_allclose(network(flipped), logits, atol=1e-6)
    empty = {name: np.zeros([1, 5], np.int32) for name in FEATURES}
    assert np.isfinite(network(empty)).all()


def test_the_dropout_of_a_bag_of_words_works_in_training_only():
    network = create_small_bag()
    counter = network.get_layer("mean_embedding").mask_counter
    first, second = network(FEATURES, training=True), network(FEATURES, training=True)
    assert (first != second).numpy().all() and counter.numpy() == 2
    np.testing.assert_array_equal(network(FEATURES), network(FEATURES))
    assert counter.numpy() == 2
    assert [layer.rate for layer in dropout_layers(network)] == [0.1]
    assert [layer.rate for layer in dropout_layers(create_small_bag(dropout=0.0))] == [0.0]


def test_a_bag_of_words_has_no_layers_to_freeze():
    with pytest.raises(ValueError, match="trainable_layers=2: expected -1, since bag_of_words has no such layers"):
        create_small_bag(trainable_layers=2)
