"""Sums of two weighted values with the same bits on every device.

A compiler may round a product and the sum that it is added to separately or
together. A product of two float32 is exact in float64, so that both are the
same there, and only the sum and its conversion to float32 are rounded.
"""

from typing import TypeAlias

import numpy as np
import tensorflow as tf

Weight: TypeAlias = float | tf.Tensor


def add(
  weight: Weight, values: tf.Tensor, other_weight: Weight, others: tf.Tensor
) -> tf.Tensor:
  """Computes weight * values + other_weight * others.

  Args:
    weight: number, which is rounded to float32, or float32 [].
    values: float32, any shape.
    other_weight: as `weight`.
    others: float32, shape of `values`.

  Returns:
    float32, shape of `values`.
  """
  products = _product(weight, values), _product(other_weight, others)
  return tf.cast(products[0] + products[1], tf.float32)


def _product(weight: Weight, values: tf.Tensor) -> tf.Tensor:
  """Returns the exact product, float64."""
  if isinstance(weight, int | float):
    weight = tf.constant(np.float32(weight))
  return tf.cast(weight, tf.float64) * tf.cast(values, tf.float64)
