"""Batches of devices for the small nets of `tests.step.small`."""

import numpy as np

from tests.step import small

SIZE, STEPS = 4, 3


def of_device(index, count):
  """A device's batches: a list of (float32 [4, 8, 8, 1], int32 [4])."""
  steps = [small.batch_of(number, [count, SIZE]) for number in range(STEPS)]
  return [(images[index], labels[index]) for images, labels in steps]


def of_two(index, count):
  """For one device the batches of two: (float32 [8, 8, 8, 1], int32 [8])."""
  batches = zip(*(of_device(i, 2) for i in (0, 1)), strict=True)
  pairs = (zip(*of_devices, strict=True) for of_devices in batches)
  return [(np.concatenate(i), np.concatenate(n)) for i, n in pairs]


def of_all(count):
  """The same of all devices: (float32 [n, 8, 8, 1], int32 [n]), NumPy."""
  batches = [batch for i in range(count) for batch in of_device(i, count)]
  images, labels = zip(*batches, strict=True)
  return np.concatenate(images), np.concatenate(labels)
