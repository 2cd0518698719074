"""PyramidNet (Han et al., 2017) with ShakeDrop (Yamada et al., 2018) as the original release builds it."""

import tensorflow as tf
from tensorflow.keras import layers

from image.models.layers import Normalize, batch_norm, batch_norm_relu, classifier_head, conv
from image.models.random_branches import ShakeDrop, layer_seed

LAST_SURVIVAL_PROB = 0.5


def create_pyramidnet(facts, depth=272, alpha=200, synchronized=False, seed=0):
    """Builds the network from uint8 RGBA images to logits.

    Args:
      facts: image.datasets.Facts.
      depth: 9n + 2 layers: bottleneck blocks of three.
      alpha: by how much the filters of a bottleneck grow from 16, in equal parts over all blocks.
      seed: of the random factors of the branches.
    """
    if depth < 11 or (depth - 2) % 9:
        raise ValueError(f"depth={depth}: a PyramidNet of bottlenecks has 9n + 2 layers, such as 11, 110 or 272.")
    num_blocks = (depth - 2) // 3
    images = tf.keras.Input([facts.image_size, facts.image_size, 4], dtype=tf.uint8, name="images")
    hidden = batch_norm(conv(Normalize(facts.mean, facts.std)(images), 16, 3), synchronized)
    for block in range(num_blocks):
        share = (block + 1) / num_blocks
        num_filters = round(16 + alpha * share)
        strides = 2 if block in (num_blocks // 3, 2 * num_blocks // 3) else 1
        residual = _bottleneck(hidden, num_filters, strides, synchronized)
        residual = ShakeDrop(1 - (1 - LAST_SURVIVAL_PROB) * share, layer_seed(seed, block))(residual)
        # Keras follows the first input of each layer by recursion: 90 residual branches in a row exceed Python's limit.
        hidden = layers.add([_shortcut(hidden, 4 * num_filters, strides), residual])
    logits = classifier_head(batch_norm_relu(hidden, synchronized), facts.num_classes)
    return tf.keras.Model(images, logits, name=f"pyramidnet_{depth}_{alpha}")


def _bottleneck(inputs, num_filters, strides, synchronized):
    # No ReLU before the first convolution, and a batch norm after the last: what Han et al. found best.
    hidden = conv(batch_norm(inputs, synchronized), num_filters, 1)
    hidden = conv(batch_norm_relu(hidden, synchronized), num_filters, 3, strides)
    hidden = conv(batch_norm_relu(hidden, synchronized), 4 * num_filters, 1)
    return batch_norm(hidden, synchronized)


def _shortcut(inputs, num_filters, strides):
    """The input, with zeros for the channels that the block adds."""
    if strides > 1:
        inputs = layers.AveragePooling2D(2, strides, padding="same")(inputs)
    return tf.pad(inputs, [[0, 0], [0, 0], [0, 0], [0, num_filters - inputs.shape[-1]]])
