"""Levels of least squared error for standard normal numbers, and scales."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import packing
from terngrad.codec.stages import wire


class Levels(NamedTuple):
  """The best levels for standard normal numbers, symmetric about 0.

  Attributes:
    name: for labels.
    values: magnitudes of the levels, rising. They are integers, so that
      products with scales of 16 bits are exact. The scales in a payload give
      their unit.
    borders: decision borders between the magnitudes, in standard deviations.
    packing: `wire.Packing` of the codes.
  """

  name: str
  values: tuple[int, ...]
  borders: tuple[float, ...]
  packing: wire.Packing

  @property
  def has_zero(self) -> bool:
    """Whether 0 is a level. The codes then are -1, 0 and 1."""
    return self.values[0] == 0

  @property
  def is_coarse(self) -> bool:
    """Whether scales are rounded to 16 bits, for exact products with levels."""
    return self.values[-1] > 1

  def codes(self, index: tf.Tensor, negative: tf.Tensor) -> tf.Tensor:
    """Returns int32 codes of indices in `values` and of signs."""
    if self.has_zero:
      return tf.where(negative, -index, index)
    return index + tf.where(negative, len(self.values), 0)

  def levels(self, codes: tf.Tensor) -> tf.Tensor:
    """Decodes codes to float32 levels; safe for any codes that unpack."""
    if self.has_zero:
      return tf.cast(codes, tf.float32)
    table = np.array([*self.values, *(-v for v in self.values)], np.float32)
    # Codes of three bits are packed in four.
    codes = tf.bitwise.bitwise_and(codes, len(table) - 1)
    return tf.gather(tf.constant(table), codes)

  def least_square(self, codes: np.ndarray) -> np.ndarray:
    """Returns lower bounds of a block's square over the square of its scale.

    With Q the square of a rotated block and A the sum of levels times
    magnitudes, the scale is Q / A, so the result bounds A**2 / Q. Magnitudes
    are at least the border below them, times sqrt(Q / block). Without level 0,
    A is also at least the first level times sqrt(Q). With level 0, the elements
    beyond the border have at least 1 - border**2 of Q.

    Args:
      codes: NumPy int32 [blocks, block].

    Returns:
      float64 [blocks].
    """
    count = len(self.values)
    index = np.abs(codes) if self.has_zero else codes & (count - 1)
    reached = np.array(self.values) * np.array([0.0, *self.borders])
    beyond = reached[np.minimum(index, count - 1)].sum(axis=1)
    first = 1 - self.borders[0] ** 2 if self.has_zero else self.values[0] ** 2
    return np.maximum(first, beyond**2 / codes.shape[1])

  def limit_scales(self, words: tf.Tensor) -> tf.Tensor:
    """Reads scales from words and limits them to those that encoders make.

    For any words, products with levels are then exact and finite, so that all
    devices decode the same bits.

    Args:
      words: int32, any shape.

    Returns:
      float32, shape of `words`. Scales that an encoder makes are unchanged,
      except that scales below 2**-100 become 0.
    """
    mask = 0x7FFFFF00 if self.is_coarse else 0x7FFFFFFF
    largest = int(np.float32(2.0**100).view(np.int32))
    bits = tf.minimum(tf.bitwise.bitwise_and(words, mask), largest)
    scales = tf.bitcast(bits, tf.float32)
    return tf.where(scales >= 2.0**-100, scales, 0.0)


def coarse(scales: tf.Tensor) -> tf.Tensor:
  """Rounds scales to 16 bits, so that products with 8-bit levels are exact.

  The scales must not have NaNs of other bits than `statistics.canonical` gives:
  some would round to numbers.
  """
  bits = tf.bitcast(scales, tf.int32)
  return tf.bitcast(tf.bitwise.bitwise_and(bits + 0x80, ~0xFF), tf.float32)


def _make_levels(
  bits: int, values: tuple[int, ...], borders: tuple[float, ...]
) -> Levels:
  # Codes of three bits are packed in four.
  packed = packing.unsigned(4 if bits == 3 else bits)
  return Levels(f'lloyd_max_{2**bits}', values, borders, packed)


# Max, Quantizing for Minimum Distortion, IRE Transactions on Information Theory
# 6 (1), 1960, table 1. Levels of two bits and more are in 64ths.
THREE = Levels('lloyd_max_3 > base3', (0, 1), (0.6120,), packing.base3())
LEVELS_BY_BITS = {
  1: _make_levels(1, (1,), ()),
  2: _make_levels(2, (29, 97), (0.9816,)),
  3: _make_levels(3, (16, 48, 86, 138), (0.5006, 1.050, 1.748)),
  4: _make_levels(
    4,
    (8, 25, 42, 60, 80, 104, 132, 175),
    (0.2582, 0.5224, 0.7996, 1.099, 1.437, 1.844, 2.401),
  ),
}
