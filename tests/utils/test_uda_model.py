"""The training step: against a NumPy account of one update, on several replicas, under XLA."""

import numpy as np
import pytest
import tensorflow as tf

from utils import training
from utils.distribution import create_strategy, distribute
from utils.settings import ObjectiveConfig
from utils.uda_model import CLASS_METRICS, METRIC_NAMES, ClassBalance, UDAModel

CLASSES, SIZE, TRAIN_STEPS = 3, 5, 100


def create_linear():
    inputs = tf.keras.Input([SIZE])
    return tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES)(inputs))


def create_batch_norm(synchronized=False):
    inputs = tf.keras.Input([SIZE])
    hidden = tf.keras.layers.Dense(6)(inputs)
    hidden = tf.keras.layers.BatchNormalization(momentum=0.9, synchronized=synchronized)(hidden)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES)(tf.keras.layers.ReLU()(hidden)))


def create_two_layers():
    inputs = tf.keras.Input([SIZE])
    hidden = tf.keras.layers.Dense(6, activation="tanh")(inputs)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES)(hidden))


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
    settings = {"train_steps": TRAIN_STEPS, "uda_softmax_temp": 0.5, "uda_confidence_thresh": 0.4, **settings}
    options = {
        name: settings.pop(name)
        for name in ("weight_decay_rate", "joint_pass", "num_parts", "fixed_target")
        if name in settings
    }
    tf.keras.utils.set_random_seed(1)
    model = UDAModel(create_network, CLASSES, ObjectiveConfig(**settings), **options)
    model.compile(tf.keras.optimizers.SGD(learning_rate), **(compile_options or {}))
    return model


def train(model, batches):
    dataset = tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(lambda *values: np.stack(values), *batches))
    batches_of_replicas = distribute(model.distribute_strategy, lambda _: dataset)
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


@pytest.mark.parametrize(
    "views, decay, options",
    [
        (["augmented"], 0.01, {"weight_decay_rate": 0.01}),
        (["augmented", "original"], 0.0, {"joint_pass": False, "fixed_target": True}),
    ],
    ids=["the paper's", "of an earlier stage"],
)
def test_one_update_follows_the_gradient_of_the_objective_with_the_target_fixed(views, decay, options):
    batch = create_batch()
    model = create_model(unsup_coeff=2.0, **options)
    before = model.network.get_weights()
    train(model, [batch])
    bias_gradient = (before[1] - model.network.get_weights()[1]) / 0.1
    # Numeric gradient with respect to the bias of the labelled examples and of these views only: the target stays.
    kernel, bias = [weight.astype(np.float64) for weight in before]
    target = softmax((batch["original"] @ kernel + bias) / 0.5)
    mask = softmax(batch["original"] @ kernel + bias).max(-1) > 0.4

    def loss(shifted):
        predict = softmax(batch["sup"] @ kernel + shifted)[range(4), batch["label"]]
        predictions = [softmax(batch[view] @ kernel + shifted) for view in views]
        divergence = np.mean([(target * np.log(target / predicted)).sum(-1) for predicted in predictions], axis=0)
        return -np.log(predict).mean() + 2.0 * (divergence * mask).mean() + decay / 2 * (shifted**2).sum()

    numeric = [(loss(bias + delta) - loss(bias - delta)) / 2e-5 for delta in 1e-5 * np.eye(CLASSES)]
    np.testing.assert_allclose(bias_gradient, numeric, atol=1e-5)


def test_entropy_term_has_a_gradient_through_the_original_view():
    batch = create_batch()
    batch["augmented"] = batch["original"]
    plain = weights_after([batch], uda_softmax_temp=-1, unsup_coeff=0.0)
    with_entropy = weights_after([batch], uda_softmax_temp=-1, unsup_coeff=0.0, ent_min_coeff=1.0)
    assert np.abs(plain[0] - with_entropy[0]).max() > 1e-4


EVERY_SETTING = {
    "tsa": ("", "linear"),
    "uda_softmax_temp": (-1.0, 0.5),
    "uda_confidence_thresh": (-1.0, 0.6),
    "unsup_coeff": (1.0, 3.0),
    "ent_min_coeff": (0.0, 0.5),
    "weight_decay_rate": (0.0, 0.1),
    "ema_decay": (0.9, 0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_SETTING)
def test_every_objective_setting_matters(name):
    base = {"uda_confidence_thresh": -1.0, "ema_decay": 0.9}
    batches = [create_batch(seed=seed) for seed in range(3)]
    first, second = (weights_after(batches, **{**base, name: value}) for value in EVERY_SETTING[name])
    assert max(np.abs(a - b).max() for a, b in zip(first, second)) > 1e-5


@pytest.mark.slow
def test_identical_views_without_sharpening_train_like_the_supervised_model():
    batch = create_batch()
    batch["augmented"] = batch["original"]
    supervised = {key: batch[key] for key in ("sup", "label")}
    first = weights_after([batch], uda_softmax_temp=-1, uda_confidence_thresh=-1)
    second = weights_after([supervised])
    np.testing.assert_allclose(first[0], second[0], atol=1e-6)


def test_masked_examples_still_count_in_the_mean():
    batch = create_batch()
    model = create_model(uda_confidence_thresh=0.999, uda_softmax_temp=-1)
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


@pytest.mark.slow
@pytest.mark.parametrize("tsa", ["", "linear", "exp"])
def test_two_replicas_match_one(tsa):
    batches = [create_batch(num_sup=8, seed=seed) for seed in range(4)]
    one = weights_after(batches, tsa=tsa, **ALL_TERMS)
    two = weights_after(batches, two_replicas(), tsa=tsa, **ALL_TERMS)
    for a, b in zip(one, two):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.slow
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


@pytest.mark.slow
def test_metrics_do_not_depend_on_the_number_of_replicas():
    batch = create_batch(num_sup=8)
    one = train(create_model(tsa="linear", **ALL_TERMS), [batch])
    with two_replicas().scope():
        model = create_model(tsa="linear", **ALL_TERMS)
    two = train(model, [batch])
    for name in METRIC_NAMES:
        np.testing.assert_allclose(one[name], two[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_synchronised_batch_norm_on_two_replicas_matches_one():
    batches = [create_batch(num_sup=8, seed=seed) for seed in range(3)]
    one = weights_after(batches, create_network=create_batch_norm, **ALL_TERMS)

    def create_synchronised():
        return create_batch_norm(synchronized=True)

    two = weights_after(batches, two_replicas(), create_network=create_synchronised, **ALL_TERMS)
    for a, b in zip(one, two):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.slow
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


# ---- a pass for each view -------------------------------------------------------------------------------------------

OBJECTIVES = {
    "plain": {"uda_softmax_temp": -1.0, "uda_confidence_thresh": -1.0},
    "tsa linear": {"tsa": "linear"},
    "tsa log": {"tsa": "log"},
    "tsa exp": {"tsa": "exp"},
    "sharpened": {"uda_softmax_temp": 0.4, "uda_confidence_thresh": -1.0},
    "masked": {"uda_softmax_temp": -1.0, "uda_confidence_thresh": 0.5},
    "entropy": {"ent_min_coeff": 0.3},
    "weighted": {"unsup_coeff": 3.0},
    "everything": {"tsa": "linear", "ent_min_coeff": 0.3, "unsup_coeff": 2.0, "ema_decay": 0.9},
}
START = {"log": 1, "linear": 6, "exp": 40}  # steps from which some examples, but not all, are too easy


def create_hard_first_batch(seed):
    """The labelled examples come in the order of their difficulty, so that TSA keeps more of the first ones."""
    batch = create_batch(num_sup=8, num_unsup=16, seed=seed)
    batch["sup"] *= 2  # more of them easy, more of them hard
    probabilities = softmax(create_model(create_two_layers).network(batch["sup"]).numpy())
    order = np.argsort(probabilities[range(8), batch["label"]])
    return batch | {"sup": batch["sup"][order], "label": batch["label"][order]}


HARD_FIRST = [create_hard_first_batch(seed) for seed in range(2)]


def steps_eagerly(batches, **settings):
    """The metrics of each step, and the weights after all."""
    model = create_model(create_two_layers, **settings)
    model.optimizer.build(model.network.trainable_variables)
    model.optimizer.iterations.assign(START.get(settings.get("tsa"), 0))
    metrics = []
    for batch in batches:
        model.reset_metrics()
        results = model.train_step(tf.nest.map_structure(tf.constant, batch))
        metrics.append({name: value.numpy() for name, value in results.items()})
    return metrics, model.network.get_weights() + (model.average_network.get_weights() if model.average_network else [])


def assert_same_steps(first, second):
    for one, other in zip(first[0], second[0], strict=True):
        assert set(one) - {"l2_loss"} == set(other) - {"l2_loss"}
        for name in other:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6, err_msg=name)
    for one, other in zip(first[1], second[1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_separate_passes_give_the_metrics_and_the_update_of_the_joint_pass(name):
    settings = OBJECTIVES[name]
    joint = steps_eagerly(HARD_FIRST, **settings)
    if "tsa" in settings:
        assert all(0 < metrics["sup_kept_ratio"] < 1 for metrics in joint[0])
    if settings.get("uda_confidence_thresh", 1.0) > 0:
        assert all(0 < metrics["unsup_kept_ratio"] < 1 for metrics in joint[0])
    for num_parts in (1, 2, 4) if name == "everything" else (1,):
        assert_same_steps(joint, steps_eagerly(HARD_FIRST, joint_pass=False, num_parts=num_parts, **settings))


def test_separate_passes_train_without_unlabelled_examples():
    batches = [{key: batch[key] for key in ("sup", "label")} for batch in HARD_FIRST]
    joint = steps_eagerly(batches, tsa="linear")
    assert_same_steps(joint, steps_eagerly(batches, tsa="linear", joint_pass=False, num_parts=4))


@pytest.mark.slow
@pytest.mark.parametrize("num_parts", [1, 2])
def test_separate_passes_on_two_replicas_match_the_joint_pass_on_one(num_parts):
    def run(strategy, **settings):
        with strategy.scope():
            model = create_model(create_two_layers, **OBJECTIVES["everything"], **settings)
            model.optimizer.build(model.network.trainable_variables)
            model.optimizer.iterations.assign(START["linear"])
        histories = [train(model, [batch]) for batch in HARD_FIRST]
        metrics = [{name: values[0] for name, values in history.items()} for history in histories]
        return metrics, model.network.get_weights() + model.average_network.get_weights()

    one = run(create_strategy("one_device"))
    # The first replica keeps all of its labelled examples, the second one not.
    assert all(0.5 <= metrics["sup_kept_ratio"] < 1 for metrics in one[0])
    assert_same_steps(one, run(two_replicas(), joint_pass=False, num_parts=num_parts))


class Spy(tf.keras.layers.Layer):
    """Notes the mark of each batch that goes through, and of each whose gradient comes back."""

    def __init__(self, forward, backward):
        super().__init__()
        self.forward, self.backward = forward, backward

    def call(self, inputs):
        hidden, marks = inputs

        @tf.custom_gradient
        def note(values):
            self.forward.append(int(marks[0]))

            def gradient(upstream):
                self.backward.append(int(marks[0]))
                return upstream

            return tf.identity(values), gradient

        return note(hidden)


@pytest.mark.parametrize(
    "settings, forward, backward",
    [
        ({"joint_pass": False}, [1, 2, 3], [1, 3]),
        ({"joint_pass": False, "num_parts": 2}, [1, 1, 2, 3, 2, 3], [1, 1, 3, 3]),
        ({"joint_pass": False, "ent_min_coeff": 0.1}, [1, 2, 3], [1, 2, 3]),
        ({"joint_pass": True}, [1], [1]),
    ],
    ids=["separate", "in parts", "with the target's entropy", "joint"],
)
def test_no_backward_work_is_spent_on_the_target(settings, forward, backward):
    found_forward, found_backward = [], []

    def create_network():
        values, marks = tf.keras.Input([SIZE], name="values"), tf.keras.Input([], dtype=tf.int32, name="marks")
        hidden = Spy(found_forward, found_backward)([tf.keras.layers.Dense(6)(values), marks])
        return tf.keras.Model({"values": values, "marks": marks}, tf.keras.layers.Dense(CLASSES)(hidden))

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Spy, "call", lambda self, inputs: inputs[0])  # while Keras builds the network
        model = create_model(create_network, compile_options={"run_eagerly": True}, **settings)
    batch = create_batch()
    views = {
        key: {"values": tf.constant(batch[key]), "marks": tf.fill([len(batch[key])], mark)}
        for mark, key in enumerate(("sup", "original", "augmented"), 1)
    }
    model.train_step(views | {"label": tf.constant(batch["label"])})
    assert (found_forward, sorted(found_backward)) == (forward, backward)


def test_views_of_different_lengths_need_separate_passes():
    def create_network():
        inputs = tf.keras.Input([None, SIZE])
        return tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES)(tf.reduce_mean(inputs, axis=1)))

    batch = {key: tf.constant(value) for key, value in create_batch().items()}
    for length, key in enumerate(("sup", "original", "augmented"), 2):
        batch[key] = tf.repeat(batch[key][:, tf.newaxis], length, axis=1)
    model = create_model(create_network, joint_pass=False)
    reference = create_model(create_linear)
    expected = reference.train_step({key: tf.constant(value) for key, value in create_batch().items()})
    np.testing.assert_allclose(model.train_step(batch)["loss"], expected["loss"], rtol=1e-5)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"joint_pass": False, "weight_decay_rate": 0.1}, "weight_decay_rate=0.1: separate passes have no such term"),
        ({"num_parts": 2}, "num_parts=2: the joint pass cannot be made in parts"),
    ],
)
def test_settings_that_would_be_ignored_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        create_model(**settings)


# ---- loss scaling ---------------------------------------------------------------------------------------------------


def create_scaling_model(initial_scale, **settings):
    model = create_model(create_two_layers, joint_pass=False, **settings)
    optimizer = tf.keras.optimizers.SGD(0.1)
    model.compile(tf.keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=initial_scale))
    model.optimizer.build(model.network.trainable_variables)
    return model


def test_a_scaled_loss_gives_the_same_update():
    batch = tf.nest.map_structure(tf.constant, HARD_FIRST[0])
    plain = create_model(create_two_layers, joint_pass=False, ent_min_coeff=0.3)
    scaling = create_scaling_model(1024.0, ent_min_coeff=0.3)
    scaled_losses = []
    scaling.scale_loss = lambda loss: scaled_losses.append(scaling.optimizer.get_scaled_loss(loss)) or scaled_losses[-1]
    losses = [model.train_step(batch)["loss"].numpy() for model in (plain, scaling)]
    assert losses[0] == losses[1] and max(scaled_losses) > 1000
    for one, other in zip(plain.network.get_weights(), scaling.network.get_weights()):
        np.testing.assert_allclose(one, other, atol=1e-7)


def test_a_step_whose_scaled_gradients_are_not_finite_is_left_out_and_the_scale_is_lowered():
    model = create_scaling_model(2.0**126)
    before = model.network.get_weights()
    batch = tf.nest.map_structure(tf.constant, HARD_FIRST[0])
    metrics = model.train_step(batch | {"sup": 1000 * batch["sup"]})
    assert np.isfinite(metrics["loss"])
    for weight, value in zip(model.network.get_weights(), before):
        np.testing.assert_array_equal(weight, value)
    assert model.optimizer.loss_scale.numpy() == 2.0**125


# ---- balance of the pseudo-labels, start of the average -------------------------------------------------------------


@pytest.mark.parametrize("shares, expected", [([[0.25] * 4], 1.0), ([[0.0, 1.0, 0.0, 0.0]], 0.0)])
def test_balance_is_1_for_even_classes_and_0_for_a_single_one(shares, expected):
    metric = ClassBalance("balance", 4)
    for row in shares:
        metric.update_state(row)
    np.testing.assert_allclose(metric.result(), expected, atol=1e-6)


def test_balance_is_of_all_steps_since_the_last_reset():
    metric = ClassBalance("balance", 2)
    assert (float(metric.result()), float(metric.count)) == (0.0, 0.0)
    metric.update_state([1.0, 0.0])
    metric.update_state([0.0, 1.0])
    np.testing.assert_allclose(metric.result(), 1.0, rtol=1e-6)
    metric.reset_state()
    metric.update_state([1.0, 0.0])
    np.testing.assert_allclose(metric.result(), 0.0, atol=1e-6)
    metric.update_state([0.5, 0.5])
    shares = np.array([0.75, 0.25])
    np.testing.assert_allclose(metric.result(), -(shares * np.log2(shares)).sum(), rtol=1e-6)


def test_balance_is_of_the_classes_predicted_on_original_examples():
    model = create_model(create_linear, learning_rate=0.0)
    batches = [create_batch(seed=seed) for seed in range(3)]
    predicted = np.concatenate([model.network(batch["original"]).numpy().argmax(-1) for batch in batches])
    shares = np.bincount(predicted, minlength=CLASSES) / len(predicted)
    expected = -(shares * np.log(np.maximum(shares, 1e-9))).sum() / np.log(CLASSES)
    assert 0 < expected < 0.999
    np.testing.assert_allclose(train(model, batches)["pseudo_label_balance"][0], expected, rtol=1e-5)


def test_the_shares_of_predictions_are_compared_with_those_of_the_labels():
    model = create_model(create_linear, learning_rate=0.0)
    batches = [create_batch(seed=seed) | {"label": np.array([0, 0, 0, 1])} for seed in range(3)]
    predicted = np.concatenate([model.network(batch["original"]).numpy().argmax(-1) for batch in batches])
    labels = np.concatenate([batch["label"] for batch in batches])
    shares = [np.bincount(classes, minlength=CLASSES) / len(classes) for classes in (labels, predicted)]
    metrics = train(model, batches)
    expected = np.abs(shares[1] - shares[0]).sum() / 2, (shares[1] - shares[0]).max()
    assert 0.05 < expected[1] < expected[0] < 1
    values = [metrics[name][0] for name in ("pseudo_label_distance", "pseudo_label_excess")]
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    model.reset_metrics()
    assert [float(model.train_metrics[name].count) for name in CLASS_METRICS] == [0, 0, 0]


@pytest.mark.parametrize("settings", [{}, {"uda_softmax_temp": 0.1, "uda_confidence_thresh": 0.99}])
def test_the_divergence_of_the_views_is_neither_sharpened_nor_masked(settings):
    model, batch = create_model(create_linear, learning_rate=0.0, **settings), create_batch()
    original, augmented = (softmax(model.network(batch[view]).numpy()) for view in ("original", "augmented"))
    expected = (original * np.log(original / augmented)).sum(-1).mean()
    np.testing.assert_allclose(train(model, [batch])["view_divergence"][0], expected, rtol=1e-4)


def test_the_average_can_start_anew_from_other_weights():
    model = create_model(ema_decay=0.9)
    model.network.set_weights([np.full_like(weight, 0.5) for weight in model.network.get_weights()])
    model.start_copies()
    for average in model.average_network.get_weights():
        np.testing.assert_array_equal(average, np.full_like(average, 0.5))
    create_model().start_copies()  # there is none: nothing happens


@pytest.mark.parametrize("num_parts", [1, 2])
def test_a_fixed_target_stays_what_the_network_predicted_at_first(num_parts):
    model = create_model(joint_pass=False, num_parts=num_parts, fixed_target=True)
    kernel, bias = first = model.network.get_weights()
    for seed in range(3):
        batch = create_batch(seed=seed)
        now = model.network.get_weights()
        logits = batch["original"] @ kernel + bias
        target, mask = softmax(logits / 0.5), softmax(logits).max(-1) > 0.4
        predictions = [softmax(batch[view] @ now[0] + now[1]) for view in ("augmented", "original")]
        divergence = np.mean([(target * np.log(target / predicted)).sum(-1) for predicted in predictions], axis=0)
        np.testing.assert_allclose(train(model, [batch])["unsup_loss"][0], (divergence * mask).mean(), rtol=1e-4)
    assert np.abs(now[0] - kernel).max() > 0.05
    for found, expected in zip(model.target_network.get_weights(), first):
        np.testing.assert_array_equal(found, expected)


def test_a_fixed_target_starts_anew_from_other_weights_and_sees_no_dropout():
    def create_network():
        inputs = tf.keras.Input([SIZE])
        return tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES)(tf.keras.layers.Dropout(0.5)(inputs)))

    model, batch = create_model(create_network, joint_pass=False, fixed_target=True), create_batch()
    kernel = np.random.default_rng(5).normal(size=[SIZE, CLASSES])
    model.network.set_weights([kernel, np.zeros(CLASSES)])
    model.start_copies()
    history = train(model, [batch])
    target = softmax(batch["original"] @ kernel / 0.5)
    entropy = -(target * np.log(target)).sum(-1) * (softmax(batch["original"] @ kernel).max(-1) > 0.4)
    found = history["unsup_cross_entropy"][0] - history["unsup_loss"][0]
    np.testing.assert_allclose(found, entropy.mean(), rtol=1e-4)


def test_beside_a_fixed_target_the_entropy_is_that_of_what_the_network_predicts():
    options = {"joint_pass": False, "fixed_target": True, "unsup_coeff": 0.0, "ent_min_coeff": 0.3}
    model, batches = create_model(**options), [create_batch(seed=seed) for seed in range(2)]
    train(model, batches[:1])
    kernel, bias = model.network.get_weights()
    predicted = softmax(batches[1]["original"] @ kernel + bias)
    found = train(model, batches[1:])
    entropy = -(predicted * np.log(predicted)).sum(-1)
    np.testing.assert_allclose(found["entropy_loss"][0], 0.3 * entropy.mean(), rtol=1e-5)
    np.testing.assert_allclose(found["original_confidence"][0], predicted.max(-1).mean(), rtol=1e-5)


def test_a_fixed_target_needs_a_pass_of_its_own():
    with pytest.raises(ValueError, match="expected a pass of its own for the target"):
        create_model(fixed_target=True)


@pytest.mark.parametrize("strategy_name", ["one_device", "mirrored"])
@pytest.mark.parametrize("num_steps", [1, 3])
def test_steps_in_one_call_are_the_steps_of_keras(strategy_name, num_steps):
    strategy, dataset = create_strategy(strategy_name), tf.data.Dataset.from_tensors(create_batch()).repeat()
    with strategy.scope():
        model, keras_model = create_model(), create_model()
    keras_model.set_weights(model.get_weights())
    make_steps, batches = training.create_steps(model, num_steps), iter(distribute(strategy, lambda _: dataset))
    for _ in range(2):
        values = make_steps(batches)
    keras_step = keras_model.make_train_function()
    for _ in range(2 * num_steps):
        keras_values = keras_step(batches)
    assert model.optimizer.iterations.numpy() == 2 * num_steps
    for weight, expected in zip(model.get_weights(), keras_model.get_weights()):
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-7)
    assert values.keys() == keras_values.keys() and values["loss"] != 0
    for name, value in values.items():
        np.testing.assert_allclose(value, model.train_metrics[name].result(), rtol=1e-5)


def test_steps_can_be_made_eagerly():
    model = create_model()
    model.compile(tf.keras.optimizers.SGD(0.1), run_eagerly=True)
    values = training.create_steps(model, 2)(iter(tf.data.Dataset.from_tensors(create_batch()).repeat()))
    assert model.optimizer.iterations.numpy() == 2 and np.isfinite(values["loss"])


def test_a_step_is_traced_once_however_many_there_are_in_a_call(monkeypatch):
    model, traced, train_step = create_model(), [], UDAModel.train_step
    monkeypatch.setattr(UDAModel, "train_step", lambda *arguments: traced.append(1) or train_step(*arguments))
    model.optimizer.build(model.network.trainable_variables)  # TensorFlow traces twice what creates variables
    training.create_steps(model, 3)(iter(tf.data.Dataset.from_tensors(create_batch()).repeat()))
    assert len(traced) == 1
