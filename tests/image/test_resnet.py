"""ResNet-50 by its published size, and where its strides and zeros are."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from image.models.resnet import _centered_conv, create_resnet
from tests.image.network_helpers import (
    check_restored_from_configuration,
    facts_of_size,
    num_trainable,
    random_images,
)

pytestmark = pytest.mark.slow

create_tiny = functools.partial(create_resnet, facts_of_size(32), blocks_per_stage=(1, 1))


@pytest.fixture(scope="module")
def full():
    return create_resnet(facts_of_size(224, num_classes=1000))


def convolutions(network):
    return [layer for layer in network.layers if isinstance(layer, tf.keras.layers.Conv2D)]


def sums(network):
    return [layer for layer in network.layers if isinstance(layer, tf.keras.layers.Add)]


def test_resnet_50_has_the_published_number_of_parameters(full):
    assert full.name == "resnet_50" and num_trainable(full) == 25_557_032


def test_stages_have_the_published_shapes(full):
    shapes = [layer.output.shape[1:] for layer in sums(full)]
    stages = [(3, 56, 256), (4, 28, 512), (6, 14, 1024), (3, 7, 2048)]
    assert shapes == [(size, size, filters) for num_blocks, size, filters in stages for _ in range(num_blocks)]


def test_strides_are_in_the_stem_the_3x3_convolutions_and_the_shortcuts(full):
    strided = [layer for layer in convolutions(full) if layer.strides == (2, 2)]
    assert sorted(layer.kernel_size[0] for layer in strided) == [1, 1, 1, 3, 3, 3, 7]
    for layer in strided:
        if layer.kernel_size == (1, 1):  # a shortcut: from the output of one block to that of the next
            assert layer.filters == 2 * layer.input.shape[-1]
        else:  # centred, see below
            assert layer.padding == "valid"


def test_every_batch_norm_has_the_original_momentum_and_epsilon(full):
    norms = [layer for layer in full.layers if isinstance(layer, tf.keras.layers.BatchNormalization)]
    assert len(norms) == len(convolutions(full)) == 53
    assert {(layer.momentum, layer.epsilon, layer.scale, layer.center) for layer in norms} == {(0.9, 1e-5, True, True)}


def test_last_scale_of_each_block_starts_at_zero_and_no_other(full):
    last = {layer.inbound_nodes[0].inbound_layers[0].name for layer in sums(full)}
    zero = {
        weight.name.split("/")[0] for weight in full.trainable_weights if "gamma" in weight.name and not np.any(weight)
    }
    assert zero == last and len(zero) == 16


def test_scales_start_at_one_without_the_option():
    network = create_tiny(zero_scale=False)
    assert all((weight.numpy() == 1).all() for weight in network.trainable_weights if "gamma" in weight.name)


def test_head_starts_near_zero(full):
    kernel, bias = full.get_layer("logits").get_weights()
    assert abs(kernel.std() - 0.01) < 1e-4 and (bias == 0).all()


@pytest.mark.parametrize("image_size", [8, 9])
@pytest.mark.parametrize("kernel_size", [3, 7])
def test_strided_convolution_is_centred_on_every_second_pixel_from_the_first(image_size, kernel_size):
    inputs = tf.keras.Input([image_size, image_size, 1])
    network = tf.keras.Model(inputs, _centered_conv(inputs, 1, kernel_size, strides=2))
    kernel = np.zeros([kernel_size, kernel_size, 1, 1])
    kernel[kernel_size // 2, kernel_size // 2] = 1  # copies the pixel in the centre
    convolutions(network)[0].set_weights([kernel])
    images = np.random.default_rng(0).normal(size=[2, image_size, image_size, 1]).astype(np.float32)
    np.testing.assert_array_equal(network(images), images[:, ::2, ::2])


@pytest.mark.parametrize("image_size", [32, 33, 47])
def test_any_size_from_32_and_any_number_of_classes(image_size):
    network = create_resnet(facts_of_size(image_size, num_classes=5), blocks_per_stage=(1, 1, 1, 1))
    logits = network(random_images(2, image_size))
    assert logits.shape == (2, 5) and logits.dtype == tf.float32
    assert sums(network)[-1].output.shape[1] == -(-image_size // 32)


def test_smaller_images_are_refused():
    with pytest.raises(ValueError, match="image_size=31: ResNet needs images of at least 32 pixels"):
        create_resnet(facts_of_size(31))


def test_network_is_restored_from_its_configuration():
    check_restored_from_configuration(create_tiny(zero_scale=False), 32)
