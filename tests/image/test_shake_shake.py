"""Shake-Shake by its published sizes and by what its shortcuts and branches compute."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from image.models.random_branches import ShakeShake
from image.models.shake_shake import _shortcut, create_shake_shake
from tests.image.network_helpers import (
    FACTS,
    check_restored_from_configuration,
    facts_of_size,
    num_trainable,
    random_images,
)

pytestmark = pytest.mark.slow

create_tiny = functools.partial(create_shake_shake, facts_of_size(8), width=4, depth=8)


@pytest.fixture(scope="module")
def tiny():
    return create_tiny()


@pytest.mark.parametrize("width, num_parameters", [(32, 2_923_162), (96, 26_192_922), (112, 35_640_442)])
def test_shake_shake_26_has_the_published_number_of_parameters(width, num_parameters):
    network = create_shake_shake(FACTS, width)
    assert num_trainable(network) == num_parameters
    stages = [layer.output.shape[1:] for layer in network.layers if isinstance(layer, ShakeShake)]
    assert stages == 4 * [(32, 32, width)] + 4 * [(16, 16, 2 * width)] + 4 * [(8, 8, 4 * width)]


def create_shortcut(image_size, strides):
    """A shortcut from 1 to 2 channels whose two paths copy what they see."""
    inputs = tf.keras.Input([image_size, image_size, 1])
    network = tf.keras.Model(inputs, _shortcut(inputs, 2, strides, synchronized=False))
    for layer in network.layers:
        if isinstance(layer, tf.keras.layers.Conv2D):
            layer.set_weights([np.ones([1, 1, 1, 1])])
    return network


@pytest.mark.parametrize("image_size", [4, 5])
@pytest.mark.parametrize("strides", [1, 2])
def test_second_path_of_a_shortcut_sees_the_image_shifted_by_one_pixel(image_size, strides):
    images = np.arange(1.0, image_size**2 + 1, dtype=np.float32).reshape(1, image_size, image_size, 1)
    shifted = np.pad(images[:, 1:, 1:], [(0, 0), (0, 1), (0, 1), (0, 0)])
    paths = [path[:, ::strides, ::strides] for path in (images, shifted)]
    # The batch norm divides by sqrt(1 + epsilon) before it has seen data.
    result = create_shortcut(image_size, strides)(images)
    np.testing.assert_allclose(result, np.concatenate(paths, -1) / (1 + 1e-5) ** 0.5, rtol=1e-6)


def test_shortcut_is_the_input_itself_where_the_shape_stays():
    inputs = tf.keras.Input([4, 4, 6])
    assert _shortcut(inputs, 6, 1, synchronized=False) is inputs


def test_block_adds_the_mean_of_two_branches_to_the_shortcut_in_evaluation(tiny):
    combination = next(layer for layer in tiny.layers if isinstance(layer, ShakeShake))
    (block,) = (node.outbound_layer for node in combination.outbound_nodes)
    first, second = combination.input
    parts = tf.keras.Model(tiny.input, [first, second, block.input[1], block.output])
    first, second, shortcut, output = parts(random_images(2, 8))
    assert np.abs(first - second).max() > 0.1
    np.testing.assert_allclose(output, (first + second) / 2 + shortcut, atol=1e-5)


def test_each_branch_is_relu_convolution_batch_norm_twice(tiny):
    combination = next(layer for layer in tiny.layers if isinstance(layer, ShakeShake))
    for layer in combination.inbound_nodes[0].inbound_layers:
        kinds = []
        for _ in range(6):
            kinds.append(type(layer).__name__)
            layer = layer.inbound_nodes[0].inbound_layers
        assert kinds == 2 * ["BatchNormalization", "Conv2D", "ReLU"]


def test_every_block_has_its_own_seed_and_other_runs_have_others():
    seeds = [
        [layer.seed for layer in create_tiny(seed=seed).layers if isinstance(layer, ShakeShake)] for seed in (0, 1)
    ]
    assert [len(of_run) for of_run in seeds] == [3, 3] and len(set(seeds[0] + seeds[1])) == 6


def test_training_is_random_and_evaluation_is_not(tiny):
    images = random_images(2, 8)
    assert (tiny(images, training=True) != tiny(images, training=True)).numpy().any()
    np.testing.assert_array_equal(tiny(images), tiny(images))


@pytest.mark.parametrize("image_size", [7, 8])
def test_any_size_and_number_of_classes(image_size):
    network = create_shake_shake(facts_of_size(image_size, num_classes=5), width=2, depth=8)
    logits = network(random_images(2, image_size))
    assert logits.shape == (2, 5) and logits.dtype == tf.float32


def test_impossible_depth_and_width_are_refused():
    with pytest.raises(ValueError, match=r"depth=27: a Shake-Shake network has 6n \+ 2 layers"):
        create_shake_shake(FACTS, depth=27)
    with pytest.raises(ValueError, match=r"width=33: the two paths of a shortcut need an even number"):
        create_shake_shake(FACTS, width=33)


def test_network_is_restored_from_its_configuration(tiny):
    check_restored_from_configuration(tiny, 8)
