"""Networks by their published parameter counts and by what their layers compute."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from image.datasets import cifar10
from image.models.layers import Normalize
from image.models.wide_resnet import create_wide_resnet

FACTS = cifar10.FACTS


def num_trainable(network):
    return sum(int(np.prod(weight.shape)) for weight in network.trainable_weights)


@pytest.mark.parametrize("size, num_parameters", [(32, 1_467_610), (160, 36_479_194)])
def test_wide_resnet_28_has_the_published_number_of_parameters(size, num_parameters):
    assert num_trainable(create_wide_resnet(FACTS, depth=28, size=size)) == num_parameters


def test_every_batch_norm_has_the_original_momentum_and_epsilon():
    layers = [layer for layer in create_wide_resnet(FACTS, 10).layers if "batch_norm" in layer.name]
    assert len(layers) == 7
    for layer in layers:
        assert (layer.momentum, layer.epsilon, layer.scale, layer.center) == (0.9, 1e-5, True, True)


def test_convolutions_have_no_bias_and_start_with_fan_out_deviation():
    tf.keras.utils.set_random_seed(0)
    for layer in create_wide_resnet(FACTS, 10, 160).layers:
        if isinstance(layer, tf.keras.layers.Conv2D):
            kernel = layer.kernel.numpy()
            expected = np.sqrt(2 / (kernel.shape[0] ** 2 * kernel.shape[3]))
            assert not layer.use_bias
            assert abs(kernel.std() / expected - 1) < (0.15 if kernel.size < 1000 else 0.03), layer.name


def test_head_starts_uniform_within_a_range_set_by_the_number_of_classes():
    kernel, bias = create_wide_resnet(FACTS, 10, 160).get_layer("logits").get_weights()
    assert 0.95 / 10**0.5 < np.abs(kernel).max() <= 1 / 10**0.5
    assert (bias == 0).all()


def test_shortcut_projects_the_raw_input_also_in_the_first_group():
    network = create_wide_resnet(FACTS, 10, 32)
    projections = [layer for layer in network.layers if getattr(layer, "kernel_size", None) == (1, 1)]
    assert [layer.filters for layer in projections] == [32, 64, 128]
    assert [layer.strides for layer in projections] == [(1, 1), (2, 2), (2, 2)]
    for layer in projections:  # its input is a convolution or a sum, not an activation
        assert "re_lu" not in layer.input.name


def test_stem_stride_halves_the_resolution():
    assert create_wide_resnet(FACTS, 10, 16, stem_stride=2).layers[2].output.shape[1:3] == (16, 16)


def test_impossible_depth_is_refused():
    with pytest.raises(ValueError, match=r"wrn_depth=27: a Wide ResNet has 6n \+ 4 layers"):
        create_wide_resnet(FACTS, depth=27)


def test_any_size_and_number_of_classes():
    facts = dataclasses.replace(FACTS, image_size=8, class_names=("a", "b", "c"))
    logits = create_wide_resnet(facts, 10, 16)(np.zeros([2, 8, 8, 4], np.uint8))
    assert logits.shape == (2, 3) and logits.dtype == tf.float32


def test_normalize_matches_its_formula_and_blanks_uncovered_pixels():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, [4, 5, 5, 4]).astype(np.uint8)
    images[..., 3] = rng.choice([0, 255], [4, 5, 5])
    result = Normalize(FACTS.mean, FACTS.std)(images).numpy()
    expected = (images[..., :3] / 255 - FACTS.mean) / FACTS.std
    covered = images[..., 3] == 255
    np.testing.assert_allclose(result[covered], expected[covered], atol=1e-6)
    assert (result[~covered] == 0).all()


def test_network_is_restored_from_its_configuration():
    network = create_wide_resnet(FACTS, 10, 16)
    copy = tf.keras.Model.from_config(network.get_config())
    copy.set_weights(network.get_weights())
    images = np.random.default_rng(0).integers(0, 256, [2, 32, 32, 4]).astype(np.uint8)
    np.testing.assert_array_equal(copy(images), network(images))
