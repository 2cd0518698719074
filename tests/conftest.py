"""One TensorFlow process with two virtual CPU devices, so that MirroredStrategy can be tried anywhere."""

import utils  # noqa: F401, I001  prepares TensorFlow
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
