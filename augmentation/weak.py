"""The weak augmentation of every training image: random flip, then a random crop of the reflect-padded image.

images = crop_flip(images, *draw_crop_flip(seed=[3, 7], num_images=448, padding=4, flip=True), padding=4)
"""

import tensorflow as tf


def draw_crop_flip(seed, num_images, padding, flip):
    """Draws where each image is cropped and whether it is flipped.

    Returns:
      offsets: int32 [num_images, 2], the crop's top left corner in the padded image.
      flips: bool [num_images].
    """
    seeds = tf.random.split(seed, 2)
    offsets = tf.random.stateless_uniform([num_images, 2], seeds[0], 0, 2 * padding + 1, tf.int32)
    flips = tf.random.stateless_uniform([num_images], seeds[1]) < (0.5 if flip else 0.0)
    return offsets, flips


def crop_flip(images, offsets, flips, padding):
    """Flips, reflect-pads by `padding` and crops back to size, in one gather of pixels.

    Args:
      images: uint8 [batch, size, size, 4]; an RGBA pixel is moved as one 32-bit number.
    """
    size = images.shape[1]
    rows = _reflect(tf.range(size) + offsets[:, :1] - padding, size)
    columns = _reflect(tf.range(size) + offsets[:, 1:] - padding, size)
    columns = tf.where(flips[:, tf.newaxis], size - 1 - columns, columns)
    positions = rows[:, :, tf.newaxis] * size + columns[:, tf.newaxis, :]
    pixels = tf.reshape(tf.bitcast(images, tf.int32), [-1, size * size])
    return tf.bitcast(tf.gather(pixels, positions, batch_dims=1), tf.uint8)


def _reflect(positions, size):
    positions = tf.abs(positions)
    return tf.minimum(positions, 2 * (size - 1) - positions)
