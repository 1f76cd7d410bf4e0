"""The levels that lose least of a standard normal number, and their scales."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import packing
from terngrad.codec.stages import wire


class Levels(NamedTuple):
  """The best levels for standard normal numbers, symmetric about 0.

  Attributes:
    name: for labels.
    values: the magnitudes, rising, as integers, so that products with scales of
      16 bits are exact; a payload's scale says of what.
    borders: between them, in standard deviations.
    packing: `wire.Packing` of the codes.
  """

  name: str
  values: tuple[int, ...]
  borders: tuple[float, ...]
  packing: wire.Packing

  @property
  def with_zero(self) -> bool:
    """Whether a level is 0, and codes are -1, 0 and 1."""
    return self.values[0] == 0

  @property
  def is_coarse(self) -> bool:
    """Whether scales have 16 bits, for products with levels to be exact."""
    return self.values[-1] > 1

  def codes(self, index: tf.Tensor, negative: tf.Tensor) -> tf.Tensor:
    """int32 codes of the places in `values`, and of signs."""
    if self.with_zero:
      return tf.where(negative, -index, index)
    return index + tf.where(negative, len(self.values), 0)

  def levels(self, codes: tf.Tensor) -> tf.Tensor:
    """float32: what codes stand for; safe for any codes that unpack."""
    if self.with_zero:
      return tf.cast(codes, tf.float32)
    table = np.array([*self.values, *(-v for v in self.values)], np.float32)
    # Three bits are packed as four.
    codes = tf.bitwise.bitwise_and(codes, len(table) - 1)
    return tf.gather(tf.constant(table), codes)

  def least_square(self, codes: np.ndarray) -> np.ndarray:
    """How small the squares of rotated blocks can be, over their scale's.

    A scale is the square over the sum of levels times magnitudes. Magnitudes
    are at least the borders that they are beyond; and levels without 0 at least
    the first, times a sum that is no less than the square's root. With 0 all of
    the square but that of the border is in what is beyond it.

    Args:
      codes: NumPy int32 [blocks, block].

    Returns:
      float64 [blocks].
    """
    count = len(self.values)
    index = np.abs(codes) if self.with_zero else codes & (count - 1)
    reached = np.array(self.values) * np.array([0.0, *self.borders])
    beyond = reached[np.minimum(index, count - 1)].sum(axis=1)
    first = 1 - self.borders[0] ** 2 if self.with_zero else self.values[0] ** 2
    return np.maximum(first, beyond**2 / codes.shape[1])

  def known_scales(self, words: tf.Tensor) -> tf.Tensor:
    """Scales as encoders make them, of what a payload has in their place.

    Whatever the words, products with levels are then exact and finite, so that
    all that decode them get the same bits.

    Args:
      words: int32, any shape.

    Returns:
      float32 of that shape: what an encoder makes is returned as it is, but for
      scales below 2**-100, which are 0.
    """
    kept = 0x7FFFFF00 if self.is_coarse else 0x7FFFFFFF
    most = int(np.float32(2.0**100).view(np.int32))
    bits = tf.minimum(tf.bitwise.bitwise_and(words, kept), most)
    scales = tf.bitcast(bits, tf.float32)
    return tf.where(scales >= 2.0**-100, scales, 0.0)


def coarse(scales: tf.Tensor) -> tf.Tensor:
  """Scales to 16 bits: products with levels of 8 are exact, see `Levels`."""
  bits = tf.bitcast(scales, tf.int32)
  return tf.bitcast(tf.bitwise.bitwise_and(bits + 0x80, ~0xFF), tf.float32)


def _of_bits(
  bits: int, values: tuple[int, ...], borders: tuple[float, ...]
) -> Levels:
  # Three bits are packed as four.
  packed = packing.unsigned(4 if bits == 3 else bits)
  return Levels(f'lloyd_max_{2**bits}', values, borders, packed)


# Max, Quantizing for Minimum Distortion, IRE Transactions on Information Theory
# 6 (1), 1960, table 1, the levels in 64ths.
THREE = Levels('lloyd_max_3 > base3', (0, 1), (0.6120,), packing.base3())
OF_BITS = {
  1: _of_bits(1, (1,), ()),
  2: _of_bits(2, (29, 97), (0.9816,)),
  3: _of_bits(3, (16, 48, 86, 138), (0.5006, 1.050, 1.748)),
  4: _of_bits(
    4,
    (8, 25, 42, 60, 80, 104, 132, 175),
    (0.2582, 0.5224, 0.7996, 1.099, 1.437, 1.844, 2.401),
  ),
}
