"""RandAugment and Cutout as batched TensorFlow operations, to augment inside tf.data.

    dataset = dataset.batch(448).enumerate()
    dataset = dataset.map(lambda step, images: randaugment(images, seed=[7, step]), num_parallel_calls=tf.data.AUTOTUNE)

The counterpart of augmentation/randaugment.py: the same operations, levels and policies, and the same pixels.
"""

import numpy as np
import tensorflow as tf

from augmentation import image_ops
from augmentation.randaugment import FIRE_PROBABILITY, MAX_LEVEL, OP_NAMES, OPS, REFERENCE_SIZE, Policies, check_ops

# A pixel is one 32-bit number 0xAABBGGRR, a word, wherever its four channels can be handled in one go.
_RGB_MASK = 0x00FFFFFF
_ALPHA_MASK = ~_RGB_MASK
_GREY = 0x010101  # times a colour: the grey pixel of that colour

# Nothing here needs AutoGraph, and its conversion of all these functions would take several seconds per map.
_as_written = tf.autograph.experimental.do_not_convert


@_as_written
def randaugment(images, seed, part=(0, 1), ops_per_image=2, ops=OP_NAMES):
    """Applies `ops_per_image` random operations and a final Cutout to each image.

    Args:
      images: uint8 [N, height, width, 3]; only N may be unknown when the graph is built.
      seed: int32 or int64 [2]; the only source of randomness.
      part: (index, count): these images are one of so many equal parts of a batch, for all of which is drawn.
      ops_per_image: operations drawn per image; each of them fires with probability 0.5.
      ops: names of the operations to draw from.

    Returns:
      uint8 [N, height, width, 4]; alpha is 0 or 255.
    """
    images = _check_batch(images, num_channels=3)
    num_images, *size = _sizes(images)
    policies = draw_policies(num_images * part[1], *size, seed, ops_per_image, ops)
    return apply_policies(images, Policies(*(_take(values, part, num_images) for values in policies)))


def _take(values, part, num_images):
    index, count = part
    return values if count == 1 else tf.reshape(values, [count, num_images, *values.shape[1:]])[index]


@_as_written
def cutout(images, seed, part=(0, 1)):
    """Applies the final Cutout alone; same arguments and result as `randaugment`."""
    images = _check_batch(images, num_channels=3)
    num_images, *size = _sizes(images)
    centers = _draw_centers(num_images * part[1], *size, seed)
    return _to_bytes(_final_cutout(_add_alpha(images), _take(centers, part, num_images)))


@_as_written
def crop_flip(images, seed, part=(0, 1)):
    """Adds an opaque alpha channel and nothing else: the trainer crops and flips every image anyway."""
    del seed, part
    return _to_bytes(_add_alpha(_check_batch(images, num_channels=3)))


AUGMENTATIONS = {"randaugment": randaugment, "cutout": cutout, "crop_flip": crop_flip}


@_as_written
def draw_policies(num_images, height, width, seed, ops_per_image=2, ops=OP_NAMES):
    """Draws from the same distribution as augmentation.randaugment.draw_policies."""
    check_ops(ops)
    seeds = tf.random.split(tf.cast(seed, tf.int64), 6)  # splitting gives other seeds in int32 than in int64
    shape = [num_images, ops_per_image]
    op_centers = _draw_centers(num_images * ops_per_image, height, width, seeds[4])
    choices = tf.random.stateless_uniform(shape, seeds[0], 0, len(ops), tf.int32)
    op_indices = tf.gather([OP_NAMES.index(name) for name in ops], choices)
    signed = tf.gather([op.signed for op in OPS.values()], op_indices)
    return Policies(
        op_indices,
        levels=tf.random.stateless_uniform(shape, seeds[1], 1, MAX_LEVEL, tf.int32),
        fires=tf.random.stateless_uniform(shape, seeds[2]) < FIRE_PROBABILITY,
        negates=signed & (tf.random.stateless_uniform(shape, seeds[3]) < 0.5),
        op_centers=tf.reshape(op_centers, [*shape, 2]),
        final_centers=_draw_centers(num_images, height, width, seeds[5]),
    )


def _draw_centers(num_images, height, width, seed):
    positions = tf.random.stateless_uniform([num_images], seed, 0, height * width, tf.int32)
    return tf.stack([positions // width, positions % width], axis=1)


@_as_written
def apply_policies(images, policies):
    """Does to RGB images [N, height, width, 3] what `policies` say, and returns them as RGBA.

    Args:
      policies: Policies of arrays or tensors, from draw_policies here or in augmentation.randaugment.
    """
    words = _add_alpha(_check_batch(images, num_channels=3))
    op_indices, levels, fires, negates, op_centers, final_centers = map(tf.convert_to_tensor, policies)
    groups = tf.where(fires, tf.gather(_GROUP_OF_OP, op_indices), len(_GROUPS))
    kinds = _kinds(op_indices, levels, negates)
    for stage in range(levels.shape[1]):
        words = _apply_by_group(words, groups[:, stage], kinds[:, stage], op_centers[:, stage])
    return _to_bytes(_final_cutout(words, final_centers))


def _apply_by_group(words, groups, kinds, centers):
    """Applies to each image the function whose index in _GROUPS is its group; the group after them is left alone."""
    # Each function sees its own images only: one copy brings them together, another puts them back in order.
    indices = tf.dynamic_partition(tf.range(tf.size(groups)), groups, len(_GROUPS) + 1)
    parts = tf.dynamic_partition(words, groups, len(_GROUPS) + 1)
    for group, function in enumerate(_GROUPS):
        members = indices[group]
        parts[group] = _apply(function, parts[group], tf.gather(kinds, members), tf.gather(centers, members))
    return tf.ensure_shape(tf.dynamic_stitch(indices, parts), words.shape)


@_as_written
def apply_op(images, name, levels, negates, centers):
    """Applies one operation to every image, with nothing left to chance.

    Args:
      images: uint8 [N, height, width, 4].
      name: a key of OPS.
      levels: integers [N], 0 to 10. Lengths in pixels grow with the image, as in apply_policies.
      negates: bool [N], whether to turn the argument's sign; the operations without a sign do not look at it.
      centers: integers [N, 2], (row, column) of Cutout.

    Returns:
      uint8 [N, height, width, 4].
    """
    if name not in OPS:
        raise ValueError(f"unknown operation name={name!r}; choose from {', '.join(OPS)}")
    words = tf.bitcast(_check_batch(images, num_channels=4), tf.int32)
    kinds = _kinds(tf.fill(tf.shape(levels), OP_NAMES.index(name)), levels, negates)
    return _to_bytes(_apply(_FUNCTIONS[name], words, kinds, centers))


def _kinds(*op_indices_levels_negates):
    return tf.stack([tf.cast(values, tf.int32) for values in op_indices_levels_negates], axis=-1)


def _apply(function, words, kinds, centers):
    """Applies a function of _GROUPS to images of `kinds` [N, 3]: operation, level, sign."""
    names = [name for name in OPS if _FUNCTIONS[name] is function]
    table = [
        [
            [_argument(name if name in names else names[0], level, sign, *words.shape[1:]) for sign in (1, -1)]
            for level in range(MAX_LEVEL + 1)
        ]
        for name in OPS
    ]
    return function(words, tf.gather_nd(table, kinds), centers)


def _argument(name, level, sign, height, width):
    op = OPS[name]
    if op.argument is None:
        return 0
    argument = op.argument(level, min(height, width) / REFERENCE_SIZE)
    return _fixed_matrix(name, sign * argument, height, width) if op.signed else argument


# Images as words [N, height, width], as channels side by side [N, height, width · 4], or as planes red, green, blue.


def _to_bytes(words):
    return tf.bitcast(words, tf.uint8)


def _to_channels(words):
    return tf.reshape(_to_bytes(words), [-1, words.shape[1], words.shape[2] * 4])


def _from_channels(channels):
    channels = tf.cast(channels, tf.uint8)  # truncates
    return tf.bitcast(tf.reshape(channels, [-1, channels.shape[1], channels.shape[2] // 4, 4]), tf.int32)


def _to_planes(words):
    return [tf.bitwise.right_shift(words, shift) & 255 for shift in (0, 8, 16)]


def _from_planes(planes):
    red, green, blue = planes
    return (red + (green + blue * 256) * 256) | _ALPHA_MASK


def _add_alpha(images):
    # Twice as fast as padding every pixel with a byte.
    return _from_planes(tf.cast(plane, tf.int32) for plane in tf.unstack(images, axis=-1))


def _per_image(values):
    return tf.reshape(values, [-1, 1, 1])


# Colours mapped in the same way in every image. All functions of _FUNCTIONS take words, arguments and centers.


def _invert(words, *_):
    return (words ^ _RGB_MASK) | _ALPHA_MASK


def _posterize(words, bits, _):
    kept = tf.gather([256 - 2 ** (8 - bits) for bits in range(9)], bits)
    return (words & _per_image(kept * _GREY)) | _ALPHA_MASK


def _solarize(words, thresholds, _):
    flips = tf.cast(_to_channels(words), tf.int32) >= _per_image(thresholds)  # a threshold of 256 is no uint8
    return (words ^ _from_channels(tf.cast(flips, tf.uint8) * 255)) | _ALPHA_MASK


# Colours mapped according to the image itself.


def _autocontrast(words, *_):
    return _from_planes(_stretch(plane) for plane in _to_planes(words))


def _stretch(plane):
    """Stretches the range of colours to 0 to 255, in float64 and in Pillow's order, because the result is truncated."""
    low = tf.cast(tf.reduce_min(plane, axis=[1, 2], keepdims=True), tf.float64)
    high = tf.cast(tf.reduce_max(plane, axis=[1, 2], keepdims=True), tf.float64)
    scale = tf.where(high > low, 255 / tf.maximum(high - low, 1), 1)
    offset = tf.where(high > low, low * scale, 0)
    return tf.cast(tf.cast(plane, tf.float64) * scale - offset, tf.int32)


def _equalize(words, *_):
    return _from_planes(_spread(plane) for plane in _to_planes(words))


def _spread(plane):
    """Spreads the colours over 0 to 255 so that the histogram becomes as flat as it can."""
    num_pixels = plane.shape[1] * plane.shape[2]
    histogram = tf.math.bincount(tf.reshape(plane, [-1, num_pixels]), minlength=256, maxlength=256, axis=-1)
    below = tf.cumsum(histogram, axis=1, exclusive=True)
    # The count below the highest colour: `below` reaches num_pixels only in the empty bins after it.
    step = tf.reduce_max(tf.where(below < num_pixels, below, 0), axis=1, keepdims=True) // 255
    # Pillow clips: with a small step the quotient passes 255.
    spread = tf.minimum((below + step // 2) // tf.maximum(step, 1), 255)
    return _look_up(tf.where(step > 0, spread, tf.range(256)), plane)


def _look_up(tables, positions):
    """Returns tables[n, positions[n, row, column]]."""
    num_tables, length = tf.unstack(tf.shape(tables))
    positions += _per_image(tf.range(num_tables) * length)
    # Single numbers are read in about half the time that tf.gather with batch_dims takes.
    return tf.gather_nd(tf.reshape(tables, [-1]), positions[..., tf.newaxis])


# Enhancers: blends of the image with a degenerate version of it.


def _color(words, factors, _):
    return _blend(_to_channels(_luma(words) * _GREY), words, factors)


def _contrast(words, factors, _):
    num_pixels = words.shape[1] * words.shape[2]
    total = tf.reduce_sum(tf.cast(_luma(words), tf.int64), axis=[1, 2], keepdims=True)
    return _blend((2 * total + num_pixels) // (2 * num_pixels), words, factors)  # the mean, rounded


def _brightness(words, factors, _):
    return _blend(0, words, factors)


def _sharpness(words, factors, _):
    height, width = words.shape[1:]
    if height < 3 or width < 3:
        return words
    blended = _blend(_smooth(words), words[:, 1:-1, 1:-1], factors)
    border_mask = -np.pad(np.zeros((height - 2, width - 2), np.int32), 1, constant_values=1)
    return (words & border_mask) | tf.pad(blended, [[0, 0], [1, 1], [1, 1]])


def _smooth(words):
    """Returns the channels of Pillow's SMOOTH filter, without the border, which it leaves as it is."""
    channels = tf.cast(_to_channels(words), tf.float32)
    total = channels[:, :-2] + channels[:, 1:-1] + channels[:, 2:]
    total = total[..., :-8] + total[..., 4:-4] + total[..., 8:] + channels[:, 1:-1, 4:-4] * 4
    # Rounds to the nearest, without a tie or a quotient near an integer: TensorFlow may multiply by 1/13 instead.
    return tf.floor((total + 6.5) / 13)


def _blend(degenerate, words, factors):
    """Returns degenerate + factor · (image − degenerate) with the image's alpha.

    `degenerate` holds channels, one value per image [N, 1, 1], or one value for all.
    """
    # Pillow computes in float32, in this order, clips and truncates.
    degenerate = tf.cast(degenerate, tf.float32)
    blended = (tf.cast(_to_channels(words), tf.float32) - degenerate) * _per_image(factors) + degenerate
    return (_from_channels(tf.clip_by_value(blended, 0, 255)) & _RGB_MASK) | (words & _ALPHA_MASK)


def _luma(words):
    """Returns ITU-R 601 luma, with Pillow's fixed-point weights."""
    red, green, blue = _to_planes(words)
    return tf.bitwise.right_shift(red * 19595 + green * 38470 + blue * 7471 + 32768, 16)


# Geometric operations: the nearest pixel of the input, or 0 where there is none.


def _transform(words, matrices, _):
    """Moves pixels; `matrices` [N, 6] come from _fixed_matrix."""
    height, width = words.shape[1:]
    a, b, c, d, e, f = (_per_image(values) for values in tf.unstack(matrices, axis=1))
    rows, columns = tf.range(height)[:, tf.newaxis], tf.range(width)
    x = tf.bitwise.right_shift(a * columns + (b * rows + c), 16)
    y = tf.bitwise.right_shift(d * columns + (e * rows + f), 16)
    # What lies outside is found in a ring of zeros around the image.
    ringed = tf.reshape(tf.pad(words, [[0, 0], [1, 1], [1, 1]]), [-1, (height + 2) * (width + 2)])
    x, y = tf.clip_by_value(x + 1, 0, width + 1), tf.clip_by_value(y + 1, 0, height + 1)
    return _look_up(ringed, y * (width + 2) + x)


def _fixed_matrix(name, argument, height, width):
    matrix = {
        "ShearX": (1, argument, 0, 0, 1, 0),
        "TranslateX": (1, 0, argument, 0, 1, 0),
        "TranslateY": (1, 0, 0, 0, 1, argument),
        "ShearY": (1, 0, 0, argument, 1, 0),
        "Rotate": image_ops.rotation_matrix(argument, height, width),
    }[name]
    return image_ops.to_fixed_point(matrix)


def _cutout(words, sizes, centers, fill=image_ops.CUTOUT_FILL):
    """Fills a square around each (row, column) of `centers`, as far as it lies within the image."""
    height, width = words.shape[1:]
    center_rows, center_columns = tf.unstack(tf.cast(centers, tf.int32), axis=1)
    rows = _near(center_rows, height, sizes // 2)[:, :, tf.newaxis]
    columns = _near(center_columns, width, sizes // 2)[:, tf.newaxis, :]
    red, green, blue, alpha = fill
    return tf.where(rows & columns, red | green << 8 | blue << 16 | alpha << 24, words)


def _near(centers, length, reach):
    """Returns booleans [N, length]: which positions are in [center − reach, center + reach)."""
    distance = tf.range(length) - tf.reshape(centers, [-1, 1])
    reach = tf.reshape(reach, [-1, 1])
    return (distance >= -reach) & (distance < reach)


def _final_cutout(words, centers):
    """Cuts out half the image's side: 16 of 32 pixels. Colours there are never seen; they become 0."""
    return _cutout(words, min(words.shape[1:]) // 2, centers, fill=(0, 0, 0, 0))


_FUNCTIONS = {
    "Invert": _invert,
    "Cutout": _cutout,
    "Sharpness": _sharpness,
    "AutoContrast": _autocontrast,
    "Posterize": _posterize,
    "Equalize": _equalize,
    "Contrast": _contrast,
    "Color": _color,
    "Solarize": _solarize,
    "Brightness": _brightness,
    **{name: _transform for name, op in OPS.items() if op.signed},
}
_GROUPS = list(dict.fromkeys(_FUNCTIONS.values()))  # images of the same function are handled together
_GROUP_OF_OP = [_GROUPS.index(_FUNCTIONS[name]) for name in OPS]


def _sizes(images):
    num_images, height, width, _ = images.shape
    return tf.shape(images)[0] if num_images is None else num_images, height, width


def _check_batch(images, num_channels):
    images = tf.convert_to_tensor(images)
    shape = images.shape
    if images.dtype != tf.uint8 or shape.rank != 4 or None in shape[1:] or shape[3] != num_channels:
        raise ValueError(
            f"images must be uint8 [N, height, width, {num_channels}] with known height and width, "
            f"got dtype={images.dtype.name}, shape={shape}"
        )
    return images
