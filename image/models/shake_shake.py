"""Shake-Shake (Gastaldi, 2017) as the original release builds it."""

import tensorflow as tf
from tensorflow.keras import layers

from image.models.layers import Normalize, batch_norm, batch_norm_relu, classifier_head, conv
from image.models.random_branches import ShakeShake, layer_seed


def create_shake_shake(facts, width=96, depth=26, synchronized=False, seed=0):
    """Builds the network from uint8 RGBA images to logits.

    Args:
      facts: image.datasets.Facts.
      width: filters of the first stage: 32, 96 or 112 for Shake-Shake 26 2x32d, 2x96d or 2x112d.
      depth: 6n + 2 layers.
      seed: of the random weights of the branches.
    """
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"depth={depth}: a Shake-Shake network has 6n + 2 layers, such as 8, 14, 20 or 26.")
    if width % 2:
        raise ValueError(f"width={width}: the two paths of a shortcut need an even number of filters.")
    images = tf.keras.Input([facts.image_size, facts.image_size, 4], dtype=tf.uint8, name="images")
    hidden = batch_norm(conv(Normalize(facts.mean, facts.std)(images), 16, 3), synchronized)
    blocks_per_stage = (depth - 2) // 6
    for block in range(3 * blocks_per_stage):
        stage = block // blocks_per_stage
        strides = 2 if stage > 0 and block % blocks_per_stage == 0 else 1
        hidden = _residual_block(hidden, width * 2**stage, strides, layer_seed(seed, block), synchronized)
    logits = classifier_head(layers.ReLU()(hidden), facts.num_classes)
    return tf.keras.Model(images, logits, name=f"shake_shake_{depth}_2x{width}d")


def _residual_block(inputs, num_filters, strides, seed, synchronized):
    branches = [_branch(inputs, num_filters, strides, synchronized) for _ in range(2)]
    return layers.add([ShakeShake(seed)(branches), _shortcut(inputs, num_filters, strides, synchronized)])


def _branch(inputs, num_filters, strides, synchronized):
    hidden = conv(layers.ReLU()(inputs), num_filters, 3, strides)
    hidden = conv(batch_norm_relu(hidden, synchronized), num_filters, 3)
    return batch_norm(hidden, synchronized)


def _shortcut(inputs, num_filters, strides, synchronized):
    """Where the shape changes: two projections, of which the second sees the pixels that the stride makes skip."""
    if inputs.shape[-1] == num_filters:
        return inputs
    # Left and up by one pixel; zeros enter at the far edges, also without a stride.
    shifted = layers.ZeroPadding2D(((0, 1), (0, 1)))(layers.Cropping2D(((1, 0), (1, 0)))(inputs))
    paths = [conv(path, num_filters // 2, 1, strides) for path in (inputs, shifted)]
    return batch_norm(layers.concatenate(paths), synchronized)
