"""Wide ResNet (Zagoruyko and Komodakis, 2016) as the original release builds it."""

import tensorflow as tf
from tensorflow.keras import layers

from image.models.layers import Normalize, batch_norm_relu, classifier_head, conv


def create_wide_resnet(facts, depth=28, size=32, stem_stride=1, synchronized=False):
    """Builds the network from uint8 RGBA images to logits.

    Args:
      facts: image.datasets.Facts.
      depth: 6n + 4 layers.
      size: filters of the first group, 16 times the widening factor (32 for WRN-28-2, 160 for WRN-28-10).
      stem_stride: 2 makes every layer after the first four times cheaper; for small machines.
    """
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"wrn_depth={depth}: a Wide ResNet has 6n + 4 layers, such as 10, 16, 22 or 28.")
    images = tf.keras.Input([facts.image_size, facts.image_size, 4], dtype=tf.uint8, name="images")
    hidden = conv(Normalize(facts.mean, facts.std)(images), 16, 3, stem_stride)
    for group, num_filters in enumerate((size, 2 * size, 4 * size)):
        for block in range((depth - 4) // 6):
            strides = 2 if group > 0 and block == 0 else 1
            hidden = _residual_block(hidden, num_filters, strides, synchronized)
    logits = classifier_head(batch_norm_relu(hidden, synchronized), facts.num_classes)
    return tf.keras.Model(images, logits, name=f"wrn_{depth}_{size // 16}")


def _residual_block(inputs, num_filters, strides, synchronized):
    hidden = conv(batch_norm_relu(inputs, synchronized), num_filters, 3, strides)
    hidden = conv(batch_norm_relu(hidden, synchronized), num_filters, 3)
    # The projection takes the raw input, not the activated one.
    if strides > 1 or inputs.shape[-1] != num_filters:
        inputs = conv(inputs, num_filters, 1, strides)
    return layers.add([hidden, inputs])
