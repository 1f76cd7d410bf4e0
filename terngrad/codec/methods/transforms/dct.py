"""The orthonormal cosine transform of blocks, with equal bits on every device.

Ahmed, Natarajan and Rao, Discrete Cosine Transform, IEEE Transactions on
Computers, 1974: type II, scaled so that the inverse is the transpose.

The order of a matrix product's sums depends on the device, so they are made
exact: the elements of a block become integers below 2**23, in units of the
block's largest magnitude, those of the matrix multiples of 2**-22, and all sums
are integers below 2**52 in float64. Results are rounded to such integers after
the rows, and to float32 after the columns. The error is about 2**-20 of the
block's largest magnitude.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec.methods.transforms import rotation
from terngrad.codec.stages import division

# Side of the largest block.
LARGEST = 64
_UNIT = 2.0**-22
# Larger magnitudes are clipped, so that coefficients are finite.
_MOST = 2.0**119


@functools.cache
def matrix(size: int) -> np.ndarray:
  """Returns the transform of `size` elements, float64 multiples of 2**-22.

  Rows are frequencies.
  """
  angles = np.outer(np.arange(size), 2 * np.arange(size) + 1)
  rows = np.cos(angles * (np.pi / (2 * size))) * math.sqrt(2 / size)
  rows[0] = math.sqrt(1 / size)
  return np.round(rows / _UNIT) * _UNIT


def transform(blocks: tf.Tensor, inverse: bool = False) -> tf.Tensor:
  """Transforms the rows and columns of blocks.

  Args:
    blocks: float32 [n, height, width], sides of at most 64. Magnitudes above
      2**119 are clipped.
    inverse: whether blocks are coefficients.

  Returns:
    float32 [n, height, width].
  """
  _, height, width = blocks.shape
  blocks = tf.clip_by_value(blocks, -_MOST, _MOST)
  largest = tf.reduce_max(tf.abs(blocks), axis=[1, 2], keepdims=True)
  power = rotation.power_of_two(largest)
  factor = tf.cast(division.divide_power_of_two(0, power), tf.float64)
  values = _rounded(tf.cast(blocks, tf.float64) * factor)
  if width > 1:
    across = matrix(width) if inverse else matrix(width).T
    values = _rounded(tf.matmul(values, tf.constant(across)))
  if height > 1:
    down = matrix(height).T if inverse else matrix(height)
    values = tf.matmul(tf.constant(down), values)
  return tf.cast(values * tf.cast(power, tf.float64), tf.float32)


def _rounded(values: tf.Tensor) -> tf.Tensor:
  """Rounds float64 to multiples of the unit, ties to even."""
  return tf.round(values * (1 / _UNIT)) * _UNIT


def sides(shape: Sequence[int]) -> tuple[int, int, int, int]:
  """Returns how a variable is cut: (rows, height, columns, width).

  It is a matrix [rows * height, columns * width], a vector one row, and a
  variable of more axes [-1, last axis]. Each side of a block is the largest
  divisor of the matrix's side up to 64.
  """
  *outer, last = shape or (1,)
  first = math.prod(outer)
  height, width = _largest_divisor(first), _largest_divisor(last)
  return first // height, height, last // width, width


def _largest_divisor(number: int) -> int:
  """Returns the largest divisor up to `LARGEST`."""
  candidates = range(min(LARGEST, number), 0, -1)
  return next((n for n in candidates if number % n == 0), 1)


def to_blocks(values: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
  """Cuts a variable, float32 [elements], into [blocks, height, width]."""
  rows, height, columns, width = sides(shape)
  cut = tf.reshape(values, [rows, height, columns, width])
  blocks = tf.transpose(cut, [0, 2, 1, 3])
  return tf.reshape(blocks, [rows * columns, height, width])


def from_blocks(blocks: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
  """Inverts `to_blocks`: returns float32 [elements]."""
  rows, height, columns, width = sides(shape)
  cut = tf.reshape(blocks, [rows, columns, height, width])
  return tf.reshape(tf.transpose(cut, [0, 2, 1, 3]), [-1])
