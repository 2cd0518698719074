"""Branches with random factors: what either pass multiplies by, and that the draws can be repeated."""

import numpy as np
import pytest
import tensorflow as tf

from image.models.random_branches import ShakeDrop, ShakeShake, layer_seed, scale

NUM_IMAGES, SEED = 6, 12
SHAPE = [NUM_IMAGES, 2, 2, 3]
RNG = np.random.default_rng(0)
FIRST, SECOND, UPSTREAM = (tf.constant(RNG.normal(size=SHAPE), tf.float32) for _ in range(3))


class OneBranch(ShakeShake):
    """ShakeShake with a branch of zeros beside its input, so that both kinds of layer take one tensor."""

    def call(self, inputs, training=False):
        return super().call([inputs, tf.zeros_like(inputs)], training=training)


LAYERS = {"shake_shake": lambda: OneBranch(SEED), "shake_drop": lambda: ShakeDrop(0.4, SEED)}
every_layer = pytest.mark.parametrize("create_layer", LAYERS.values(), ids=LAYERS)


def expected_draws(num_draws, counter, replica=0):
    seed = tf.random.experimental.stateless_fold_in(tf.constant([SEED, counter], tf.int64), np.int64(replica))
    return tf.random.stateless_uniform([num_draws, NUM_IMAGES, 1, 1, 1], seed).numpy()


def expected_shake_shake(counter, replica=0):
    """Weights [pass, branch, image, 1, 1, 1]."""
    uniform = 1 - expected_draws(4, counter, replica).reshape(2, 2, NUM_IMAGES, 1, 1, 1)
    return uniform / uniform.sum(axis=1, keepdims=True)


def expected_shake_drop(counter, survival_prob):
    """Factors [pass, image, 1, 1, 1], by the formula of the paper."""
    draws = expected_draws(3, counter)
    b, alpha, beta = (draws[0] < survival_prob).astype(np.float32), 2 * draws[1] - 1, draws[2]
    return b + alpha - b * alpha, b + beta - b * beta


def outputs_and_gradients(layer, inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(inputs, training=True)
    return outputs.numpy(), tape.gradient(outputs, inputs, UPSTREAM)


def draw(layer):
    return layer(tf.ones([NUM_IMAGES, 1, 1, 1]), training=True).numpy().ravel()


def test_scale_multiplies_by_one_factor_forwards_and_by_the_other_backwards():
    value = tf.constant([[2.0, 3.0], [4.0, 5.0]])
    forward, backward = tf.constant([[-1.0], [10.0]]), tf.constant([[0.5], [7.0]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([value, forward, backward])
        result = scale(value, forward, backward)
    np.testing.assert_array_equal(result, [[-2, -3], [40, 50]])
    np.testing.assert_array_equal(tape.gradient(result, value), [[0.5, 0.5], [7, 7]])
    assert tape.gradient(result, forward) is None and tape.gradient(result, backward) is None


@pytest.mark.parametrize("counter", [0, 5])
def test_shake_shake_combines_the_branches_by_its_draws_in_each_pass(counter):
    layer = ShakeShake(SEED)
    layer([FIRST, SECOND])
    layer.counter.assign(counter)
    outputs, gradients = outputs_and_gradients(layer, [FIRST, SECOND])
    forward, backward = expected_shake_shake(counter)
    np.testing.assert_allclose(outputs, forward[0] * FIRST + forward[1] * SECOND, rtol=1e-5, atol=1e-6)
    for gradient, weight in zip(gradients, backward):
        np.testing.assert_allclose(gradient, weight * UPSTREAM, rtol=1e-5)
    assert np.abs(forward - backward).max() > 0.1


@pytest.mark.parametrize("counter", [0, 5])
def test_shake_drop_scales_by_its_draws_in_each_pass(counter):
    layer = ShakeDrop(0.4, SEED)
    layer(FIRST)
    layer.counter.assign(counter)
    outputs, gradient = outputs_and_gradients(layer, FIRST)
    forward, backward = expected_shake_drop(counter, 0.4)
    np.testing.assert_allclose(outputs, forward * FIRST, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, backward * UPSTREAM, rtol=1e-5, atol=1e-6)
    kept = forward == 1
    assert 0 < kept.sum() < NUM_IMAGES and (backward[kept] == 1).all()  # both passes share b
    assert (forward[~kept] != backward[~kept]).all()


def test_shake_shake_weights_are_positive_and_sum_to_one_in_each_pass():
    layer = ShakeShake(SEED)
    layer([FIRST, SECOND])
    for weights in layer.draw_weights(tf.zeros([1000, 1, 1, 1])):
        np.testing.assert_allclose(tf.reduce_sum(weights, axis=0), np.ones([1000, 1, 1, 1]), rtol=1e-6)
        assert weights.shape == [2, 1000, 1, 1, 1] and (weights.numpy() > 0).all()


def test_evaluation_takes_the_mean_of_shake_shake_and_leaves_the_counter():
    layer = ShakeShake(SEED)
    np.testing.assert_allclose(layer([FIRST, SECOND]), (FIRST + SECOND) / 2, rtol=1e-6)
    assert layer.counter.numpy() == 0


def test_evaluation_multiplies_by_the_survival_probability_and_leaves_the_counter():
    layer = ShakeDrop(0.7, SEED)
    np.testing.assert_allclose(layer(FIRST, training=False), 0.7 * FIRST, rtol=1e-6)
    assert layer.counter.numpy() == 0


@every_layer
def test_evaluation_is_the_expectation_of_training(create_layer):
    layer, ones = create_layer(), tf.ones([40_000, 1, 1, 1])
    factors = layer(ones, training=True).numpy()
    standard_error = factors.std() / len(factors) ** 0.5
    assert abs(factors.mean() - layer(ones[:1]).numpy().item()) < 4 * standard_error < 0.02


def test_shake_drop_keeps_images_as_often_as_it_should_and_shakes_the_others_within_their_ranges():
    layer = ShakeDrop(0.7, SEED)
    layer(FIRST)
    forward, backward = (factor.numpy().ravel() for factor in layer.draw_factors(tf.zeros([10_000, 1, 1, 1])))
    assert abs((forward == 1).mean() - 0.7) < 0.02
    forward, backward = forward[forward != 1], backward[forward != 1]
    for factor, low, high in ((forward, -1, 1), (backward, 0, 1)):
        assert low <= factor.min() < low + 0.01 and high - 0.01 < factor.max() <= high
    assert abs(np.corrcoef(forward, backward)[0, 1]) < 0.1  # α and β are independent


@every_layer
def test_each_image_gets_its_own_factor_for_all_pixels_and_channels(create_layer):
    factors = create_layer()(tf.ones(SHAPE), training=True).numpy()
    assert (factors == factors[:, :1, :1, :1]).all()
    shaken = factors[:, 0, 0, 0][factors[:, 0, 0, 0] != 1]
    assert len(set(shaken)) == len(shaken) > 1


@every_layer
def test_training_calls_count_and_differ_and_the_same_count_repeats_the_draw(create_layer):
    layer = create_layer()
    first, second = draw(layer), draw(layer)
    assert layer.counter.numpy() == 2
    assert (first != second).any()
    layer.counter.assign(0)
    np.testing.assert_array_equal(draw(layer), first)


@every_layer
def test_layers_with_other_seeds_draw_other_numbers(create_layer):
    layer = create_layer()
    other = type(layer).from_config(layer.get_config() | {"seed": SEED + 1})
    assert (draw(layer) != draw(other)).any()


def test_no_two_blocks_of_different_runs_share_a_seed():
    assert len({layer_seed(seed, block) for seed in range(3) for block in range(90)}) == 270


@every_layer
def test_draws_continue_from_a_checkpoint(create_layer, tmp_path):
    layer, restored = create_layer(), create_layer()
    draw(layer)
    path = tf.train.Checkpoint(layer=layer).save(tmp_path / "checkpoint")
    expected = draw(layer)
    draw(restored), draw(restored), draw(restored)
    tf.train.Checkpoint(layer=restored).restore(path).assert_consumed()
    np.testing.assert_array_equal(draw(restored), expected)


@every_layer
def test_the_counter_is_a_weight_that_is_not_trained(create_layer):
    layer = create_layer()
    layer(FIRST)
    assert layer.trainable_weights == [] and [weight.dtype for weight in layer.weights] == [tf.int64]


@every_layer
def test_a_layer_is_restored_from_its_configuration(create_layer):
    layer = create_layer()
    np.testing.assert_array_equal(draw(type(layer).from_config(layer.get_config())), draw(layer))


@every_layer
def test_compiled_with_xla_both_passes_still_have_their_own_factors(create_layer):
    layer = create_layer()

    @tf.function(jit_compile=True)
    def step(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs, training=True)
        return outputs, tape.gradient(outputs, inputs)

    ones = tf.ones([NUM_IMAGES, 1, 1, 1])
    layer(ones)
    (outputs, gradients), (next_outputs, _) = step(ones), step(ones)
    assert (outputs != next_outputs).numpy().any() and layer.counter.numpy() == 2
    shaken = outputs != 1
    assert tf.reduce_any(shaken) and tf.reduce_all((outputs != gradients)[shaken])


@every_layer
def test_factors_take_the_type_of_the_branch(create_layer):
    layer = type(create_layer()).from_config(create_layer().get_config() | {"dtype": "mixed_bfloat16"})
    for training in (False, True):
        assert layer(FIRST, training=training).dtype == tf.bfloat16


def test_replicas_draw_different_numbers_and_count_together(tmp_path):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def create_built():
        layer = OneBranch(SEED)
        layer.build(SHAPE)
        return layer

    with strategy.scope():
        layer, restored = create_built(), create_built()

    @tf.function
    def run(layer):
        return strategy.run(lambda: layer(tf.ones([NUM_IMAGES, 1, 1, 1]), training=True))

    for step in range(2):
        values = strategy.experimental_local_results(run(layer))
        for replica, value in enumerate(values):
            np.testing.assert_allclose(value, expected_shake_shake(step, replica)[0, 0], rtol=1e-6)
    assert [counter.numpy() for counter in strategy.experimental_local_results(layer.counter)] == [2, 2]
    path = tf.train.Checkpoint(layer=layer).save(tmp_path / "checkpoint")
    tf.train.Checkpoint(layer=restored).restore(path).assert_consumed()
    pairs = zip(*(strategy.experimental_local_results(run(each)) for each in (layer, restored)))
    for expected, value in pairs:
        np.testing.assert_array_equal(expected, value)
