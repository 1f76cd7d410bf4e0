"""A process one of whose workers fails in the middle of a synchronized pass."""

import sys

import tensorflow as tf

from tests.step import small


def main():
  """Takes a good step and one with a label that is none."""
  tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices('CPU')[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
  )
  run = small.Training(
    small.conv_net, devices=2, workers=2, codec='identity', synchronize=True
  )
  images, labels = small.batch_of(0, run.shape)
  run.take(0, images, labels)
  sys.stdout.write('began\n')
  # The second worker fails after the first gather and before the last; whose
  # error is told, its own or that of the gather, is a matter of time.
  bad = tf.tensor_scatter_nd_update(labels, [[1, 0]], [99])
  try:
    run.take(1, images, bad)
  except tf.errors.OpError:
    sys.stdout.write('failed\n')


if __name__ == '__main__':
  main()
