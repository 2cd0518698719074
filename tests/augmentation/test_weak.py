"""augmentation/weak.py against plain NumPy: flip, reflect-pad, crop."""

import numpy as np
import pytest
import tensorflow as tf

from augmentation import weak
from tests.image.small_data import plain_crop_flip


def assert_equals_plain(size, padding, offsets, flips):
    images = np.random.default_rng(size).integers(0, 256, (len(offsets), size, size, 4), np.uint8)
    cropped = weak.crop_flip(tf.constant(images), tf.constant(offsets, tf.int32), tf.constant(flips), padding)
    assert cropped.dtype == tf.uint8 and cropped.shape == images.shape
    plain = [plain_crop_flip(*example, padding) for example in zip(images, offsets, flips)]
    np.testing.assert_array_equal(cropped, plain)


def test_every_offset_and_flip_at_32_pixels_equals_plain_numpy():
    choices = [(row, column, flip) for row in range(9) for column in range(9) for flip in (False, True)]
    assert_equals_plain(32, 4, [choice[:2] for choice in choices], [choice[2] for choice in choices])


@pytest.mark.parametrize("size, padding", [(8, 1), (5, 4), (7, 0), (96, 12)])
def test_other_sizes_equal_plain_numpy(size, padding):
    last = 2 * padding
    offsets = [(0, 0), (last, last), (0, last), (last, 0), (padding, padding), (padding // 2, last)]
    assert_equals_plain(size, padding, offsets, [False, True, True, False, True, False])


def test_the_middle_offset_without_flip_changes_nothing():
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 4), np.uint8)
    cropped = weak.crop_flip(tf.constant(images), tf.constant([[4, 4]] * 3), tf.constant([False] * 3), 4)
    np.testing.assert_array_equal(cropped, images)


def test_draws_are_a_function_of_the_seed():
    draws = [weak.draw_crop_flip(seed, 100, 4, True) for seed in ([3, 7], [3, 7], [3, 8], [4, 7])]
    for part in range(2):
        np.testing.assert_array_equal(draws[0][part], draws[1][part])
        assert not np.array_equal(draws[0][part], draws[2][part])
        assert not np.array_equal(draws[0][part], draws[3][part])


def test_draws_are_uniform_over_all_offsets_and_half_are_flips():
    offsets, flips = weak.draw_crop_flip([0, 0], 81_000, 4, True)
    counts = np.bincount(offsets[:, 0] * 9 + offsets[:, 1], minlength=81)
    assert counts.min() > 1000 - 5 * 1000**0.5 and counts.max() < 1000 + 5 * 1000**0.5
    assert abs(np.mean(flips) - 0.5) < 5 * 0.5 / 81_000**0.5
    assert abs(np.corrcoef(offsets[:, 1], flips)[0, 1]) < 5 / 81_000**0.5


def test_no_flip_where_flips_change_the_class():
    offsets, flips = weak.draw_crop_flip([3, 7], 1000, 4, False)
    assert not np.any(flips)
    np.testing.assert_array_equal(offsets, weak.draw_crop_flip([3, 7], 1000, 4, True)[0])
