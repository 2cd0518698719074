"""ResNet for ImageNet (He et al., 2016) with the stride in the 3x3 convolutions, known as version 1.5."""

import tensorflow as tf
from tensorflow.keras import layers

from image.models.layers import Normalize, batch_norm, batch_norm_relu, classifier_head, conv

MINIMUM_SIZE = 32  # the strides divide the image size by as much


def create_resnet(facts, blocks_per_stage=(3, 4, 6, 3), synchronized=False, zero_scale=True):
    """Builds the network from uint8 RGBA images to logits.

    Args:
      facts: image.datasets.Facts.
      blocks_per_stage: number of bottleneck blocks in each stage; the default is ResNet-50.
      zero_scale: start the last batch norm of each block with scale 0, so that every block is the identity at first
        (Goyal et al., 2017).
    """
    if facts.image_size < MINIMUM_SIZE:
        raise ValueError(f"image_size={facts.image_size}: ResNet needs images of at least {MINIMUM_SIZE} pixels.")
    images = tf.keras.Input([facts.image_size, facts.image_size, 4], dtype=tf.uint8, name="images")
    hidden = _centered_conv(Normalize(facts.mean, facts.std)(images), 64, 7, 2)
    hidden = layers.MaxPooling2D(3, 2, padding="same")(batch_norm_relu(hidden, synchronized))
    for stage, num_blocks in enumerate(blocks_per_stage):
        for block in range(num_blocks):
            strides = 2 if stage > 0 and block == 0 else 1
            hidden = _residual_block(hidden, 64 * 2**stage, strides, synchronized, zero_scale)
    # ImageNet recipes start the classifier near 0: with 1000 classes, near the loss of a uniform prediction.
    logits = classifier_head(hidden, facts.num_classes, tf.keras.initializers.RandomNormal(stddev=0.01))
    return tf.keras.Model(images, logits, name=f"resnet_{3 * sum(blocks_per_stage) + 2}")


def _residual_block(inputs, num_filters, strides, synchronized, zero_scale):
    hidden = batch_norm_relu(conv(inputs, num_filters, 1), synchronized)
    hidden = batch_norm_relu(_centered_conv(hidden, num_filters, 3, strides), synchronized)
    hidden = batch_norm(conv(hidden, 4 * num_filters, 1), synchronized, "zeros" if zero_scale else "ones")
    if strides > 1 or inputs.shape[-1] != 4 * num_filters:
        inputs = batch_norm(conv(inputs, 4 * num_filters, 1, strides), synchronized)
    return layers.ReLU()(layers.add([hidden, inputs]))


def _centered_conv(inputs, num_filters, kernel_size, strides):
    """A convolution centred on every second pixel from the first, as a strided shortcut is, whatever the image size."""
    if strides == 1:
        return conv(inputs, num_filters, kernel_size)
    # Padding "same" is lopsided with a stride, and starts at the second pixel when the size is even.
    return conv(layers.ZeroPadding2D(kernel_size // 2)(inputs), num_filters, kernel_size, strides, padding="valid")
