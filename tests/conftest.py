"""One TensorFlow process with two virtual CPU devices, so that MirroredStrategy can be tried anywhere."""

import utils  # noqa: F401, I001  prepares TensorFlow
import os
import tempfile

import pytest
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


@pytest.fixture(scope="session", autouse=True)
def own_cache():
    """Which records have been checked is remembered for the time of the tests only."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UDA_CACHE"] = folder
        yield
