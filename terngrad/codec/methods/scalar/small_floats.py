"""Base class of codes of floats of a few bits, with a scale for each group."""

import abc
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec.methods import grouped
from terngrad.codec.stages import division
from terngrad.codec.stages import packing


class Format(NamedTuple):
  """A format of floats: a sign, an exponent and a mantissa.

  Attributes:
    bits: of a float: 4 or 8.
    mantissa: mantissa bits.
    bias: of the exponent.
    largest: the largest finite code.
  """

  bits: int
  mantissa: int
  bias: int
  largest: int

  def values(self) -> np.ndarray:
    """Returns the value of each code, float32 [2**bits].

    Codes above the largest finite code have its value.
    """
    codes = np.minimum(np.arange(2 ** (self.bits - 1)), self.largest)
    exponent, rest = codes >> self.mantissa, codes & (2**self.mantissa - 1)
    fraction = rest / 2**self.mantissa + (exponent > 0)
    values = np.ldexp(fraction, np.maximum(exponent, 1) - self.bias)
    return np.concatenate([values, -values]).astype(np.float32)


class SmallFloats(grouped.Grouped):
  """Floats of a few bits, rounded to nearest, ties to even."""

  scales_made = 'powers of two as scales'

  def __init__(self, name: str, form: Format, group_size: int) -> None:
    """Creates the code; see `grouped.Grouped` for the arguments."""
    super().__init__(name, packing.unsigned(form.bits), group_size)
    self.form, self.table = form, form.values()
    self.largest = float(self.table[form.largest])

  @abc.abstractmethod
  def scales_of(self, span: tf.Tensor) -> tf.Tensor:
    """Computes powers of two for groups by their largest magnitudes.

    Args:
      span: float32 [rows].

    Returns:
      float32 [rows], the values of code 1.0.
    """

  def encode_groups(
    self, rows: tf.Tensor, bits: tf.Tensor | None
  ) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Computes the scales and rounds elements to floats."""
    scales = self.scales_of(tf.reduce_max(tf.abs(rows), axis=1))
    inverses = division.divide_power_of_two(0, scales)
    bounded = tf.minimum(tf.abs(rows) * inverses[:, tf.newaxis], self.largest)
    codes = _codes(bounded, self.form)
    sign = 2 ** (self.form.bits - 1)
    return [scales], codes + tf.where((rows < 0.0) & (codes > 0), sign, 0)

  def decode_groups(
    self, scales: Sequence[tf.Tensor], codes: tf.Tensor
  ) -> tf.Tensor:
    """Multiplies the values of the floats by the scales, exactly."""
    # Damaged scales become powers of two as well.
    return tf.gather(self.table, codes) * power_of_two(scales[0], 0)

  def as_encoded(self, scales: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Rounds scales down to powers of two."""
    return [power_of_two(scales[0], 0)]


def _codes(values: tf.Tensor, form: Format) -> tf.Tensor:
  """Rounds float32 magnitudes within the range to int32 codes."""
  _, mantissa, bias, _ = form
  cut = 23 - mantissa
  bits = tf.bitcast(values, tf.int32)
  odd = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, cut), 1)
  rounded = tf.bitwise.right_shift(bits + (2 ** (cut - 1) - 1) + odd, cut)
  normal = rounded - ((127 - bias) << mantissa)
  # Subnormal numbers have equal steps.
  even = tf.cast(tf.round(values * 2.0 ** (bias - 1 + mantissa)), tf.int32)
  return tf.where(values >= 2.0 ** (1 - bias), normal, even)


def power_of_two(values: tf.Tensor, added: int) -> tf.Tensor:
  """Rounds to a power of two in [2**-120, 2**120].

  Args:
    values: float32 >= 0, any shape.
    added: to the bits before the mantissa is cut: 0 rounds down, 2**23 - 1 up,
      and 2**22 - 1 to nearest, and 1.5 down.
  """
  bits = tf.bitcast(values, tf.int32)
  bits = tf.bitwise.bitwise_and(bits + added, 0x7F800000)
  return tf.clip_by_value(tf.bitcast(bits, tf.float32), 2.0**-120, 2.0**120)
