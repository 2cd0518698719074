"""PyramidNet by its published size, its growing widths, its shortcuts and its survival probabilities."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from image.models.pyramidnet import _shortcut, create_pyramidnet
from image.models.random_branches import ShakeDrop
from tests.image.network_helpers import (
    FACTS,
    check_restored_from_configuration,
    facts_of_size,
    num_trainable,
    random_images,
)

pytestmark = pytest.mark.slow

create_tiny = functools.partial(create_pyramidnet, facts_of_size(8), depth=11, alpha=6)


@pytest.fixture(scope="module")
def full():
    return create_pyramidnet(FACTS)


@pytest.fixture(scope="module")
def tiny():
    return create_tiny()


def shake_drops(network):
    return [layer for layer in network.layers if isinstance(layer, ShakeDrop)]


def test_pyramidnet_272_has_the_published_number_of_parameters(full):
    assert num_trainable(full) == 26_210_842


def test_filters_grow_in_equal_parts_to_864(full):
    filters = np.array([layer.output.shape[-1] for layer in shake_drops(full)])
    assert len(filters) == 90 and filters[0] == 72 and filters[-1] == 864
    assert np.abs(filters / 4 - (16 + np.arange(1, 91) * 200 / 90)).max() <= 0.5


def test_resolution_halves_where_the_second_and_the_third_stage_begin(full):
    assert [layer.output.shape[1] for layer in shake_drops(full)] == 30 * [32] + 30 * [16] + 30 * [8]


def test_survival_probabilities_fall_linearly_to_one_half(full):
    probs = [layer.survival_prob for layer in shake_drops(full)]
    np.testing.assert_allclose(probs, [1 - number / 90 * 0.5 for number in range(1, 91)])
    assert probs[-1] == 0.5


def test_every_block_has_its_own_seed_and_other_runs_have_others(full):
    seeds = [layer.seed for layer in shake_drops(full)]
    others = [layer.seed for layer in shake_drops(create_tiny(seed=1))]
    assert len(set(seeds)) == 90 and not set(seeds) & set(others)


def test_shortcut_pads_zero_channels_at_the_end():
    inputs = np.random.default_rng(0).normal(size=[2, 4, 4, 3]).astype(np.float32)
    result = _shortcut(tf.constant(inputs), 5, strides=1).numpy()
    np.testing.assert_array_equal(result[..., :3], inputs)
    assert result.shape == (2, 4, 4, 5) and (result[..., 3:] == 0).all()


def test_strided_shortcut_averages_squares_of_four_pixels():
    inputs = np.random.default_rng(0).normal(size=[2, 4, 4, 3]).astype(np.float32)
    result = _shortcut(tf.constant(inputs), 5, strides=2).numpy()
    np.testing.assert_allclose(result[..., :3], inputs.reshape(2, 2, 2, 2, 2, 3).mean((2, 4)), rtol=1e-5, atol=1e-6)
    assert result.shape == (2, 2, 2, 5) and (result[..., 3:] == 0).all()


def test_block_adds_its_surviving_share_to_the_shortcut_in_evaluation(tiny):
    drop = shake_drops(tiny)[1]
    (block,) = (node.outbound_layer for node in drop.outbound_nodes)
    shortcut, branch, output = tf.keras.Model(tiny.input, [block.input[0], drop.input, block.output])(
        random_images(2, 8)
    )
    np.testing.assert_allclose(output, shortcut + branch * (2 / 3), atol=1e-5)


def test_each_branch_is_a_bottleneck_between_batch_norms_without_a_first_relu(tiny):
    layer, kinds = shake_drops(tiny)[0].inbound_nodes[0].inbound_layers, []
    for _ in range(9):
        kinds.append((type(layer).__name__, getattr(layer, "kernel_size", (0,))[0]))
        layer = layer.inbound_nodes[0].inbound_layers
    norm, relu = ("BatchNormalization", 0), ("ReLU", 0)
    assert kinds == [norm, ("Conv2D", 1), relu, norm, ("Conv2D", 3), relu, norm, ("Conv2D", 1), norm]


def test_training_is_random_and_evaluation_is_not(tiny):
    images = random_images(2, 8)
    assert (tiny(images, training=True) != tiny(images, training=True)).numpy().any()
    np.testing.assert_array_equal(tiny(images), tiny(images))


@pytest.mark.parametrize("image_size", [7, 8])
def test_any_size_and_number_of_classes(image_size):
    network = create_pyramidnet(facts_of_size(image_size, num_classes=5), depth=11, alpha=3)
    logits = network(random_images(2, image_size))
    assert logits.shape == (2, 5) and logits.dtype == tf.float32


def test_impossible_depth_is_refused():
    with pytest.raises(ValueError, match=r"depth=271: a PyramidNet of bottlenecks has 9n \+ 2 layers"):
        create_pyramidnet(FACTS, depth=271)


def test_network_is_restored_from_its_configuration(tiny):
    check_restored_from_configuration(tiny, 8)
