"""The training step: against a NumPy account of one update, on several replicas, under XLA."""

import numpy as np
import pytest
import tensorflow as tf

from utils.distribution import create_strategy, distribute
from utils.uda_model import METRIC_NAMES, UDAModel

CLASSES, SIZE, TRAIN_STEPS = 3, 5, 100


def create_linear():
    inputs = tf.keras.Input([SIZE])
    return tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES)(inputs))


def create_batch_norm(synchronized=False):
    inputs = tf.keras.Input([SIZE])
    hidden = tf.keras.layers.Dense(6)(inputs)
    hidden = tf.keras.layers.BatchNormalization(momentum=0.9, synchronized=synchronized)(hidden)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES)(tf.keras.layers.ReLU()(hidden)))


def create_batch(num_sup=4, num_unsup=8, seed=0):
    rng = np.random.default_rng(seed)
    original = rng.normal(size=[num_unsup, SIZE])
    batch = {
        "sup": rng.normal(size=[num_sup, SIZE]),
        "original": original,
        "augmented": original + rng.normal(size=[num_unsup, SIZE]),
    }
    batch = {key: value.astype(np.float32) for key, value in batch.items()}
    return batch | {"label": rng.integers(0, CLASSES, num_sup)}


def create_model(create_network=create_linear, learning_rate=0.1, compile_options=None, **settings):
    settings = {"train_steps": TRAIN_STEPS, "softmax_temp": 0.5, "confidence_thresh": 0.4, **settings}
    tf.keras.utils.set_random_seed(1)
    model = UDAModel(create_network, CLASSES, **settings)
    model.compile(tf.keras.optimizers.SGD(learning_rate), **(compile_options or {}))
    return model


def train(model, batches):
    dataset = tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(lambda *values: np.stack(values), *batches))
    batches_of_replicas = distribute(model.distribute_strategy, lambda: dataset)
    return model.fit(batches_of_replicas, steps_per_epoch=len(batches), verbose=0).history


def weights_after(batches, strategy=None, **settings):
    with (strategy or tf.distribute.get_strategy()).scope():
        model = create_model(**settings)
    train(model, batches)
    return model.network.get_weights() + (model.average_network.get_weights() if model.average_network else [])


def softmax(logits):
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def expected_loss(weights, batch, step, tsa, temperature, threshold, coefficient, entropy_coefficient, weight_decay):
    """The objective in plain NumPy, in float64."""
    kernel, bias = [weight.astype(np.float64) for weight in weights]
    predict = {key: softmax(batch[key] @ kernel + bias) for key in ("sup", "original", "augmented")}
    true_prob = predict["sup"][range(len(batch["label"])), batch["label"]]
    kept = true_prob <= (step / TRAIN_STEPS * (1 - 1 / CLASSES) + 1 / CLASSES if tsa == "linear" else 1.0)
    supervised = -np.log(true_prob[kept]).sum() / max(kept.sum(), 1)
    target = softmax((batch["original"] @ kernel + bias) / temperature)
    divergence = (target * np.log(target / predict["augmented"])).sum(-1)
    consistency = (divergence * (predict["original"].max(-1) > threshold)).mean()
    entropy = -(predict["original"] * np.log(predict["original"])).sum(-1).mean()
    decay = weight_decay / 2 * sum((weight.astype(np.float64) ** 2).sum() for weight in weights)
    return supervised + entropy_coefficient * entropy + coefficient * consistency + decay


@pytest.mark.parametrize("tsa", ["", "linear"])
def test_loss_is_the_objective_of_the_paper(tsa):
    model = create_model(tsa=tsa, unsup_coeff=2.0, ent_min_coeff=0.3, weight_decay_rate=0.01)
    model.optimizer.build(model.network.trainable_variables)
    model.optimizer.iterations.assign(30)
    batch = create_batch(num_sup=16)
    before = model.network.get_weights()
    loss = train(model, [batch])["loss"][0]
    np.testing.assert_allclose(loss, expected_loss(before, batch, 30, tsa, 0.5, 0.4, 2.0, 0.3, 0.01), rtol=1e-5)


def test_one_update_follows_the_gradient_of_the_objective_with_the_target_fixed():
    batch = create_batch()
    model = create_model(unsup_coeff=2.0, weight_decay_rate=0.01)
    before = model.network.get_weights()
    train(model, [batch])
    bias_gradient = (before[1] - model.network.get_weights()[1]) / 0.1
    # Numeric gradient with respect to the bias of the labelled and the augmented view only: the target stays.
    kernel, bias = [weight.astype(np.float64) for weight in before]
    target = softmax((batch["original"] @ kernel + bias) / 0.5)
    mask = softmax(batch["original"] @ kernel + bias).max(-1) > 0.4

    def loss(shifted):
        predict = softmax(batch["sup"] @ kernel + shifted)[range(4), batch["label"]]
        divergence = (target * np.log(target / softmax(batch["augmented"] @ kernel + shifted))).sum(-1)
        return -np.log(predict).mean() + 2.0 * (divergence * mask).mean() + 0.005 * (shifted**2).sum()

    numeric = [(loss(bias + delta) - loss(bias - delta)) / 2e-5 for delta in 1e-5 * np.eye(CLASSES)]
    np.testing.assert_allclose(bias_gradient, numeric, atol=1e-5)


def test_entropy_term_has_a_gradient_through_the_original_view():
    batch = create_batch()
    batch["augmented"] = batch["original"]
    plain = weights_after([batch], softmax_temp=-1, unsup_coeff=0.0)
    with_entropy = weights_after([batch], softmax_temp=-1, unsup_coeff=0.0, ent_min_coeff=1.0)
    assert np.abs(plain[0] - with_entropy[0]).max() > 1e-4


EVERY_SETTING = {
    "tsa": ("", "linear"),
    "softmax_temp": (-1.0, 0.5),
    "confidence_thresh": (-1.0, 0.6),
    "unsup_coeff": (1.0, 3.0),
    "ent_min_coeff": (0.0, 0.5),
    "weight_decay_rate": (0.0, 0.1),
    "ema_decay": (0.9, 0.5),
}


@pytest.mark.parametrize("name", EVERY_SETTING)
def test_every_objective_setting_matters(name):
    base = {"confidence_thresh": -1.0, "ema_decay": 0.9}
    batches = [create_batch(seed=seed) for seed in range(3)]
    first, second = (weights_after(batches, **{**base, name: value}) for value in EVERY_SETTING[name])
    assert max(np.abs(a - b).max() for a, b in zip(first, second)) > 1e-5


def test_identical_views_without_sharpening_train_like_the_supervised_model():
    batch = create_batch()
    batch["augmented"] = batch["original"]
    supervised = {key: batch[key] for key in ("sup", "label")}
    first = weights_after([batch], softmax_temp=-1, confidence_thresh=-1)
    second = weights_after([supervised])
    np.testing.assert_allclose(first[0], second[0], atol=1e-6)


def test_masked_examples_still_count_in_the_mean():
    batch = create_batch()
    model = create_model(confidence_thresh=0.999, softmax_temp=-1)
    # One certain unlabelled example among seven uncertain ones.
    kernel, bias = model.network.get_weights()
    batch["original"] = np.zeros_like(batch["original"])
    batch["original"][0] = 100 * np.linalg.pinv(kernel.T)[:, 0]
    batch["augmented"] = np.zeros_like(batch["original"])
    history = train(model, [batch])
    np.testing.assert_allclose(history["unsup_kept_ratio"][0], 1 / 8)
    np.testing.assert_allclose(history["unsup_loss"][0], np.log(CLASSES) / 8, rtol=1e-3)


def test_all_labelled_examples_dropped_gives_no_supervised_loss():
    model = create_model(tsa="linear")
    batch = create_batch()
    kernel, _ = model.network.get_weights()
    batch["sup"] = np.stack([100 * np.linalg.pinv(kernel.T)[:, label] for label in batch["label"]])
    history = train(model, [batch])
    assert history["sup_loss"][0] == 0.0 and history["sup_kept_ratio"][0] == 0.0
    assert np.isfinite(history["loss"][0])


def test_all_views_share_the_batch_norm_statistics_of_one_pass():
    model = create_model(create_batch_norm)
    batch = create_batch()
    kernel, bias = model.network.layers[1].get_weights()
    train(model, [batch])
    hidden = np.concatenate([batch["sup"], batch["original"], batch["augmented"]]) @ kernel + bias
    moving_mean = model.network.layers[2].moving_mean.numpy()
    np.testing.assert_allclose(moving_mean, 0.1 * hidden.mean(0), rtol=1e-4, atol=1e-6)


def test_average_covers_weights_and_batch_norm_statistics():
    model = create_model(create_batch_norm, ema_decay=0.9)
    expected = [weight.copy() for weight in model.network.get_weights()]
    for seed in range(3):
        train(model, [create_batch(seed=seed)])
        expected = [0.9 * average + 0.1 * now for average, now in zip(expected, model.network.get_weights())]
    assert len(expected) == 8  # two dense layers, and scale, offset, mean and variance of the batch norm
    for average, value in zip(model.average_network.get_weights(), expected):
        np.testing.assert_allclose(average, value, rtol=1e-5, atol=1e-6)


def test_evaluation_uses_the_averaged_weights():
    model = create_model(ema_decay=0.9)
    features = create_batch()["sup"]
    model.average_network.set_weights([np.full_like(weight, 0.5) for weight in model.network.get_weights()])
    np.testing.assert_allclose(model(features), model.average_network(features))
    np.testing.assert_allclose(model(features, training=True), model.network(features))


def test_evaluation_counts_examples_by_weight():
    model = create_model()
    batch = create_batch(num_sup=6)
    weight = np.array([1, 1, 1, 1, 0, 0], np.float32)
    logits = model.network(batch["sup"]).numpy()
    dataset = tf.data.Dataset.from_tensors({"sup": batch["sup"], "label": batch["label"], "weight": weight})
    metrics = model.evaluate(dataset, verbose=0, return_dict=True)
    np.testing.assert_allclose(metrics["accuracy"], (logits.argmax(-1) == batch["label"])[:4].mean())


def test_every_metric_is_logged():
    model = create_model(tsa="log", ent_min_coeff=0.1)
    assert set(train(model, [create_batch()])) == set(METRIC_NAMES)


def test_metrics_are_means_over_the_steps():
    model = create_model(learning_rate=0.0)
    batches = [create_batch(seed=seed) for seed in range(2)]
    apart = [train(model, [batch])["loss"][0] for batch in batches]
    np.testing.assert_allclose(train(model, batches)["loss"][0], np.mean(apart), rtol=1e-6)


# ---- several replicas -----------------------------------------------------------------------------------------------


def two_replicas():
    return create_strategy("mirrored")


ALL_TERMS = {"ema_decay": 0.9, "ent_min_coeff": 0.3, "weight_decay_rate": 0.01, "unsup_coeff": 2.0}


@pytest.mark.parametrize("tsa", ["", "linear", "exp"])
def test_two_replicas_match_one(tsa):
    batches = [create_batch(num_sup=8, seed=seed) for seed in range(4)]
    one = weights_after(batches, tsa=tsa, **ALL_TERMS)
    two = weights_after(batches, two_replicas(), tsa=tsa, **ALL_TERMS)
    for a, b in zip(one, two):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_tsa_divides_by_the_global_count_of_kept_examples():
    # All kept examples lie on one replica; dividing by its own count would double the loss.
    batch = create_batch(num_sup=4)
    with two_replicas().scope():
        model = create_model(tsa="linear", learning_rate=0.0)
    kernel, _ = model.network.get_weights()
    easy = 100 * np.linalg.pinv(kernel.T)
    batch["sup"] = np.stack([easy[:, label] for label in batch["label"]])
    batch["sup"][:2] *= -1  # the first replica's examples are hard
    history = train(model, [batch])
    logits = batch["sup"][:2] @ kernel
    expected = -np.log(softmax(logits.astype(np.float64))[range(2), batch["label"][:2]] + 1e-300).mean()
    assert history["sup_kept_ratio"][0] == 0.5
    np.testing.assert_allclose(history["sup_loss"][0], expected, rtol=1e-4)


def test_metrics_do_not_depend_on_the_number_of_replicas():
    batch = create_batch(num_sup=8)
    one = train(create_model(tsa="linear", **ALL_TERMS), [batch])
    with two_replicas().scope():
        model = create_model(tsa="linear", **ALL_TERMS)
    two = train(model, [batch])
    for name in METRIC_NAMES:
        np.testing.assert_allclose(one[name], two[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_synchronised_batch_norm_on_two_replicas_matches_one():
    batches = [create_batch(num_sup=8, seed=seed) for seed in range(3)]
    one = weights_after(batches, create_network=create_batch_norm, **ALL_TERMS)

    def create_synchronised():
        return create_batch_norm(synchronized=True)

    two = weights_after(batches, two_replicas(), create_network=create_synchronised, **ALL_TERMS)
    for a, b in zip(one, two):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_step_compiles_with_xla_and_gives_the_same_update():
    batches = [create_batch(num_sup=8, seed=seed) for seed in range(2)]
    settings = {"create_network": create_batch_norm, "tsa": "exp", **ALL_TERMS}
    plain = weights_after(batches, **settings)
    compiled = weights_after(batches, compile_options={"jit_compile": True}, **settings)
    for a, b in zip(plain, compiled):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_features_may_be_a_structure():
    def create_network():
        ids, mask = tf.keras.Input([SIZE], name="ids"), tf.keras.Input([SIZE], name="mask")
        logits = tf.keras.layers.Dense(CLASSES)(ids * mask)
        return tf.keras.Model({"ids": ids, "mask": mask}, logits)

    batch = create_batch()
    views = {key: {"ids": batch[key], "mask": np.ones_like(batch[key])} for key in ("sup", "original", "augmented")}
    model = create_model(create_network)
    reference = create_model(create_linear)
    model.network.set_weights(reference.network.get_weights())
    dataset = tf.data.Dataset.from_tensors(views | {"label": batch["label"]})
    loss = model.fit(dataset, verbose=0).history["loss"]
    np.testing.assert_allclose(loss, train(reference, [batch])["loss"], rtol=1e-6)
