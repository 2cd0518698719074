"""The mean of the standardisation, which follows the features while layers below it are trained."""

import numpy as np
import pytest
import tensorflow as tf

from tests.utils.test_uda_model import CLASSES, SIZE, create_batch, create_model, train, two_replicas
from utils.standardize import MOMENTUM, Standardize

WIDTH = 6


def create_standardized():
    inputs = tf.keras.Input([SIZE])
    features = tf.keras.layers.Dense(WIDTH, activation="tanh", name="below")(inputs)
    standardized = Standardize(name="standardize")(features)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES, name="logits")(standardized))


def train_on(batches, strategy=None, **settings):
    """Features of the first batch before the training, and the model after it."""
    with (strategy or tf.distribute.get_strategy()).scope():
        model = create_model(create_standardized, joint_pass=False, **settings)
    below = model.network.get_layer("below")
    features = {view: below(batches[0][view]).numpy() for view in ("sup", "original", "augmented")}
    train(model, batches)
    return features, model


def statistics(network):
    return network.get_layer("standardize").get_weights()


@pytest.mark.parametrize("settings", [{}, {"num_parts": 2}, {"ent_min_coeff": 0.3}], ids=str)
def test_a_step_moves_the_mean_towards_that_of_the_original_views(settings):
    features, model = train_on([create_batch()], **settings)
    mean, deviation = statistics(model.network)
    np.testing.assert_allclose(mean, (1 - MOMENTUM) * features["original"].mean(axis=0), rtol=1e-5, atol=1e-7)
    assert deviation.tolist() == [1] * WIDTH
    for view in ("sup", "augmented"):
        assert not np.allclose(mean, (1 - MOMENTUM) * features[view].mean(axis=0), rtol=1e-2)


def test_the_averaged_network_follows_too():
    _, model = train_on([create_batch()], ema_decay=0.9)
    mean, average = (statistics(network)[0] for network in (model.network, model.average_network))
    np.testing.assert_allclose(average, 0.1 * mean, rtol=1e-5)


def test_a_common_shift_of_all_features_is_forgotten():
    _, model = train_on([create_batch()], learning_rate=0.0)
    before = model.network(create_batch()["original"]).numpy()
    below = model.network.get_layer("below")
    kernel, bias = below.get_weights()
    below.set_weights([kernel * 1e-3, bias + 0.5])  # hardly anything but a shift, the same for all examples
    shifted = model.network(create_batch()["original"]).numpy()
    train(model, [create_batch()] * 200)
    followed = model.network(create_batch()["original"]).numpy()
    assert np.abs(followed - model.network.get_layer("logits").bias).max() < 0.01
    assert np.abs(shifted - model.network.get_layer("logits").bias).max() > 0.1 < np.abs(before).max()


@pytest.mark.parametrize("num_parts", [1, 2])
def test_two_replicas_follow_as_one(num_parts):
    batches = [create_batch(seed=seed) for seed in range(3)]
    one, two = (train_on(batches, strategy, num_parts=num_parts)[1] for strategy in (None, two_replicas()))
    np.testing.assert_allclose(statistics(two.network), statistics(one.network), rtol=1e-4, atol=1e-6)
    assert np.abs(statistics(one.network)[0]).max() > 0.01


def test_evaluation_labelled_examples_and_the_head_alone_leave_it_as_it_is():
    batch = create_batch()
    on_labels = create_model(create_standardized, joint_pass=False)
    train(on_labels, [{key: batch[key] for key in ("sup", "label")}])
    head_alone = create_model(create_standardized)  # in a joint pass
    train(head_alone, [batch])
    for model in (on_labels, head_alone):
        model(batch["original"], training=False)
        assert not statistics(model.network)[0].any()
