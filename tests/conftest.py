"""Four logical CPU devices for every test, before TensorFlow is used."""

import tensorflow as tf

DEVICES = 4

tf.config.set_logical_device_configuration(
  tf.config.list_physical_devices('CPU')[0],
  [tf.config.LogicalDeviceConfiguration()] * DEVICES,
)
