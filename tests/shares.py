"""Hosts that share batches: what they make together is what one host makes."""

import numpy as np
import tensorflow as tf

from utils.record_stream import WHOLE, Share


def assert_shares_are_the_whole(create_dataset, num_batches, counts=(4,)):
    """Compares the parts of several hosts, put together, with the batches of one.

    Args:
      create_dataset: a function from a Share to a dataset of dicts; a part may be shorter in its second dimension.
    """
    wholes = list(create_dataset(WHOLE).take(num_batches).as_numpy_iterator())
    assert len(wholes) == num_batches
    for count in counts:
        hosts = [create_dataset(Share(index, count)).take(num_batches).as_numpy_iterator() for index in range(count)]
        for whole, *parts in zip(wholes, *hosts, strict=True):
            tf.nest.map_structure(assert_equal_parts, whole, *parts)


def assert_equal_parts(whole, *parts):
    assert {len(part) for part in parts} == {len(whole) // len(parts)}
    parts = [fill_up(part, whole.shape[1:]) for part in parts]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def fill_up(part, shape):
    return np.pad(part, [(0, 0), *((0, size - found) for size, found in zip(shape, part.shape[1:], strict=True))])
