"""Preprocessing by data set.

To add one: a module with a `preprocess` like `slim.preprocessing.mnist`'s, one
entry in `PREPROCESSINGS`.
"""

from collections import abc

import tensorflow as tf

from slim import errors
from slim.preprocessing import mnist

Preprocess = abc.Callable[[tf.Tensor, tf.Tensor, int], tf.Tensor]

PREPROCESSINGS: dict[str, Preprocess] = {
  'mnist': mnist.preprocess,
}


def get(name: str) -> Preprocess:
  """Returns the preprocessing of the data set `name`.

  It is a pure function: (images uint8 [B, H, W, C], seeds int64 [B, 2],
  image_size in pixels) to float32 [B, image_size, image_size, C].

  Args:
    name: a key of `PREPROCESSINGS`.

  Raises:
    slim.errors.UnknownNameError: no such data set.
  """
  return errors.lookup(PREPROCESSINGS, name, 'preprocessing')
