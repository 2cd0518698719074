"""The 15 image operations of RandAugment on batches of RGBA images, each pixel equal to Pillow's result.

    sheared = image_ops.shear_x(images, 0.27)     # images: uint8, (N, height, width, 4)

Every operation returns a new array of the same shape and leaves its input alone. Alpha 0 marks pixels without content.
As with Pillow, geometric operations and enhancers carry alpha along, while the operations that Pillow has for RGB only
(invert, posterize, solarize, autocontrast, equalize) reset it to 255.
"""

import functools
import math

import numpy as np

CUTOUT_FILL = (125, 122, 113, 0)  # about the mean colour of CIFAR-10; alpha 0 says that it is not part of the image

# NumPy 1.26 ignores the type of a scalar whose value fits the array's type (uint8 array × uint16(4) is uint8): arrays
# are widened before any arithmetic with constants.
_RGB_MASK = np.uint32(0x00FFFFFF)
_ALPHA_MASK = np.uint32(0xFF000000)
_IDENTITY_TABLE = np.arange(256, dtype=np.uint8)


def _to_words(images):
    """Views (N, height, width, 4) bytes as (N, height, width) words 0xAABBGGRR, to handle a pixel in one go."""
    return np.ascontiguousarray(images).view("<u4")[..., 0]


def _to_bytes(words):
    return np.ascontiguousarray(words, "<u4")[..., np.newaxis].view(np.uint8)


def add_alpha(images):
    """Returns RGB images (N, height, width, 3) as RGBA (N, height, width, 4) with alpha 255."""
    shape = images.shape[:3]
    words = np.empty(math.prod(shape), "<u4")
    if words.size:
        # Read four bytes at every third address: red, green, blue, and one that alpha then hides. This is several times
        # as fast as copying three of four channels. The last pixel has no fourth byte.
        flat = np.ascontiguousarray(images).reshape(-1)
        np.bitwise_or(np.ndarray(words.size - 1, "<u4", flat, strides=3), _ALPHA_MASK, out=words[:-1])
        words[-1] = _pixel(*flat[-3:], 255)
    return _to_bytes(words.reshape(shape))


def _pixel(red, green, blue, alpha):
    return np.uint32(int(red) | int(green) << 8 | int(blue) << 16 | int(alpha) << 24)


# Colours mapped in the same way in every image.


def invert(images):
    return _to_bytes((_to_words(images) ^ _RGB_MASK) | _ALPHA_MASK)


def posterize(images, bits):
    """Keeps the highest `bits` bits of every colour."""
    kept = 256 - 2 ** (8 - bits)
    return _to_bytes((_to_words(images) & _pixel(kept, kept, kept, 0)) | _ALPHA_MASK)


def solarize(images, threshold):
    """Inverts the colours at or above `threshold`."""
    flips = np.multiply(images >= threshold, 255, dtype=np.uint8)
    return _to_bytes(_to_words(images ^ flips) | _ALPHA_MASK)


# Colours mapped by tables that come from the image itself.


def autocontrast(images):
    """Stretches every channel to the range 0 to 255."""
    low = images.min(axis=1).min(axis=1)[..., np.newaxis].astype(np.float64)
    high = images.max(axis=1).max(axis=1)[..., np.newaxis].astype(np.float64)
    scale = 255.0 / np.maximum(high - low, 1.0)
    # Entries outside [low, high] are never looked up, so they may wrap around.
    stretched = (np.arange(256) * scale - low * scale).astype(np.int64).astype(np.uint8)
    return _look_up(np.where(high > low, stretched, _IDENTITY_TABLE), _table_keys(images), images.shape)


def equalize(images):
    """Spreads every channel over 0 to 255 so that its histogram becomes as flat as it can."""
    keys = _table_keys(images)
    histograms = np.bincount(keys.ravel(), minlength=len(images) * 1024).reshape(-1, 4, 256)
    below = np.cumsum(histograms, axis=-1) - histograms
    num_pixels = images.shape[1] * images.shape[2]
    # The count below the highest colour: `below` reaches num_pixels only in the empty bins after it.
    step = np.where(below < num_pixels, below, 0).max(axis=-1, keepdims=True) // 255
    # Pillow clips: with a small step the quotient passes 255.
    spread = np.minimum((below + step // 2) // np.maximum(step, 1), 255).astype(np.uint8)
    return _look_up(np.where(step > 0, spread, _IDENTITY_TABLE), keys, images.shape)


def _table_keys(images):
    """Numbers every (image, channel, colour), so that one bincount or one look-up serves the whole batch."""
    num_images, height, width, _ = images.shape
    channels = np.tile(np.arange(0, 1024, 256, dtype=np.uint16), height * width)
    return (images.reshape(num_images, -1) + channels) + np.arange(num_images)[:, np.newaxis] * 1024


def _look_up(tables, keys, shape):
    """Returns opaque images from tables (N, 4, 256)."""
    tables[:, 3] = 255
    return tables.reshape(-1).take(keys).reshape(shape)


# Enhancers: blends of the image with a degenerate version of it.


def color(images, factor):
    """Blends with the grey image."""
    grey = _grey(images)
    grey |= (grey << np.uint32(8)) | (grey << np.uint32(16)) | (_to_words(images) & _ALPHA_MASK)
    return _blend(_to_bytes(grey), images, factor)


def contrast(images, factor):
    """Blends with the image's mean grey."""
    means = _grey(images).mean(axis=(1, 2), dtype=np.float64)
    return _blend(np.floor(means + 0.5), images, factor)


def brightness(images, factor):
    """Blends with black."""
    return _blend(np.zeros(1), images, factor)


def sharpness(images, factor):
    """Blends with the smoothed image."""
    return _blend(_smooth(images), images, factor)


def _blend(degenerate, images, factor):
    """Returns degenerate + factor · (images − degenerate) with the images' alpha.

    `degenerate` holds images, one value per image, or one value for all.
    """
    factor = np.float32(factor)
    if factor == 1:
        return images.copy()
    degenerate = degenerate.astype(np.float32).reshape(len(degenerate), -1)
    # Pillow computes in float32, in this order, and truncates; for factors outside [0, 1] it also clips.
    blended = images.reshape(len(images), -1).astype(np.float32)
    blended -= degenerate
    blended *= factor
    blended += degenerate
    if not 0 <= factor <= 1:
        blended = np.clip(blended.astype(np.int16), 0, 255)  # far faster than clipping floats; holds for |factor| < 127
    colors = _to_words(blended.astype(np.uint8).reshape(images.shape))
    return _to_bytes((colors & _RGB_MASK) | (_to_words(images) & _ALPHA_MASK))


def _grey(images):
    """Returns ITU-R 601 luma (N, height, width) as uint32, with Pillow's fixed-point weights."""
    words, byte = _to_words(images), np.uint32(255)
    grey = (words & byte) * np.uint32(19595)
    grey += ((words >> np.uint32(8)) & byte) * np.uint32(38470)
    grey += ((words >> np.uint32(16)) & byte) * np.uint32(7471)
    grey += np.uint32(32768)
    return grey >> np.uint32(16)


def _smooth(images):
    """Returns Pillow's SMOOTH filter: the 3×3 mean in which the centre counts five times. Borders are copied."""
    smoothed = images.copy()
    num_images, height, width, _ = images.shape
    if height < 3 or width < 3:
        return smoothed
    wide = images.reshape(num_images, height, width * 4).astype(np.uint16)
    total = wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:]
    total = total[..., :-8] + total[..., 4:-4] + total[..., 8:]
    total += wide[:, 1:-1, 4:-4] * np.uint16(4)
    total += np.uint16(6)  # rounds to the nearest: an odd divisor has no ties
    smoothed[:, 1:-1, 1:-1] = (total // np.uint16(13)).reshape(num_images, height - 2, width - 2, 4)
    return smoothed


# Geometric operations: the nearest pixel of the input, or (0, 0, 0, 0) where there is none.


def shear_x(images, shear):
    """Shifts every row left by `shear` × its distance from the top."""
    return _transform(images, (1.0, shear, 0.0, 0.0, 1.0, 0.0))


def shear_y(images, shear):
    """Shifts every column up by `shear` × its distance from the left."""
    return _transform(images, (1.0, 0.0, 0.0, shear, 1.0, 0.0))


def translate_x(images, pixels):
    """Shifts the content left."""
    return _transform(images, (1.0, 0.0, pixels, 0.0, 1.0, 0.0))


def translate_y(images, pixels):
    """Shifts the content up."""
    return _transform(images, (1.0, 0.0, 0.0, 0.0, 1.0, pixels))


def rotate(images, degrees):
    """Turns the content counter-clockwise about the centre."""
    return _transform(images, rotation_matrix(degrees, images.shape[1], images.shape[2]))


def rotation_matrix(degrees, height, width):
    center_x, center_y = width / 2, height / 2
    angle = -math.radians(degrees % 360.0)
    cosine, sine = round(math.cos(angle), 15), round(math.sin(angle), 15)
    offset_x = cosine * -center_x + sine * -center_y + center_x  # in Pillow's order of rounding
    offset_y = -sine * -center_x + cosine * -center_y + center_y
    return cosine, sine, offset_x, -sine, cosine, offset_y


def _transform(images, matrix):
    num_images, height, width, _ = images.shape
    sources, covered_mask = _source_pixels(matrix, height, width)
    words = _to_words(images).reshape(num_images, -1).take(sources, axis=1, mode="clip")
    words &= covered_mask
    return _to_bytes(words.reshape(num_images, height, width))


@functools.lru_cache(maxsize=128)  # RandAugment has 90 matrices for one image size
def _source_pixels(matrix, height, width):
    """Returns the input pixel of every output pixel, and a mask of ones where there is one and of zeros elsewhere."""
    a, b, c, d, e, f = to_fixed_point(matrix)
    rows, columns = np.mgrid[:height, :width]
    x, y = (c + a * columns + b * rows) >> 16, (f + d * columns + e * rows) >> 16
    covered = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    sources = np.where(covered, y * width + x, 0).ravel()
    return sources, np.where(covered, np.uint32(0xFFFFFFFF), np.uint32(0)).ravel()


def to_fixed_point(matrix):
    """Pillow's map from the centres of output pixels to input coordinates, as six numbers of 16.16 fixed point."""
    a, b, c, d, e, f = matrix
    centred = (a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5)
    return [math.floor(value * 65536 + 0.5) for value in centred]


def cutout(images, size, centers, fill=CUTOUT_FILL):
    """Fills a square around each (row, column) of `centers`, shape (N, 2), as far as it lies within the image."""
    rows = _near(centers[:, 0], images.shape[1], size // 2)
    columns = _near(centers[:, 1], images.shape[2], size // 2)
    words = _to_words(images).copy()
    np.copyto(words, _pixel(*fill), where=rows[:, :, np.newaxis] & columns[:, np.newaxis, :])
    return _to_bytes(words)


def _near(centers, length, reach):
    """Returns (N, length) booleans: which positions are in [center − reach, center + reach)."""
    distance = np.arange(length) - centers[:, np.newaxis]
    return (distance >= -reach) & (distance < reach)
