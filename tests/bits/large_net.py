"""Prints digests of a large net after a step, sent whole and in parts.

  python -m tests.bits.large_net

Takes one step of ResNet-50 on two devices, with float32 gradients that are sent
whole and in parts, and prints a digest of the parameters of each.
"""

import hashlib
import sys

import numpy as np
import tensorflow as tf

from slim.nets import factory
from terngrad.cluster import devices
from tests.step import small

# A pass over images of 224 pixels needs far more than the 256 MiB that
# TensorFlow assumes a CPU to have; see `devices.keep_order_of_sums`.
_PIXELS = 224
_CLASSES = 5


def _net():
  return factory.build(
    'resnet_v1_50',
    num_classes=_CLASSES,
    image_size=_PIXELS,
    channels=3,
    seed=5,
  )


def main():
  """Prints two lines."""
  names = devices.tower_devices(2)
  devices.keep_order_of_sums()
  images = tf.random.stateless_normal([2, 1, _PIXELS, _PIXELS, 3], [0, 5])
  labels = tf.constant([[1], [3]])
  for part_bytes in (0, 4 << 20):
    training = small.Training(
      _net,
      devices=len(names),
      workers=2,
      codec='identity',
      batch=2,
      part_bytes=part_bytes,
    )
    training.take(0, images, labels, rate=0.01)
    bits = np.ascontiguousarray(training.values())
    sys.stdout.write(f'{hashlib.sha256(bits).hexdigest()}\n')


if __name__ == '__main__':
  main()
