"""8-bit floats, with a power of two as the scale of each group.

Micikevicius et al., FP8 Formats for Deep Learning, 2022,
https://arxiv.org/abs/2209.05433: e4m3, which has no infinity and a maximum of
448, and e5m2, with a maximum of 57344. Departure: each group has a separate
scale, which maps its largest magnitude to the upper half of the range.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import grouped
from terngrad.codec.stages import division
from terngrad.codec.stages import packing
from terngrad.native import grouped_ops

# Mantissa bits, exponent bias and largest finite code.
FORMATS = {'e4m3': (3, 7, 0x7E), 'e5m2': (2, 15, 0x7B)}


class Fp8(grouped.Grouped):
  """8-bit floats, rounded to nearest, ties to even."""

  traits = by_variable.DETERMINISTIC._replace(rounds=True)

  def __init__(self, kind: str = 'e4m3', group_size: int = 512) -> None:
    """Creates the code.

    Args:
      kind: 'e4m3' or 'e5m2'.
      group_size: elements that share a scale, 32 bits; 0 for a whole variable.

    Raises:
      ValueError: an option is out of its range.
    """
    if kind not in FORMATS:
      raise ValueError(
        f'kind: expected one of {", ".join(FORMATS)}, received {kind!r}. Use '
        'e4m3, or e5m2 for gradients of very different magnitudes.'
      )
    name = f'fp8({kind}, {group_size})'
    super().__init__(name, packing.unsigned(8), group_size)
    self.mantissa, self.bias, largest = FORMATS[kind]
    self.table = _values(self.mantissa, self.bias, largest)
    self.largest = float(self.table[largest])
    self.kernels = grouped_ops.GroupedCode(
      grouped_ops.FLOATS, largest, 256, 4, group_size
    )

  def encode_groups(
    self, rows: tf.Tensor, bits: tf.Tensor | None
  ) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Computes the scales and rounds elements to 8-bit floats."""
    span = tf.reduce_max(tf.abs(rows), axis=1)
    scales = _power_of_two_above(span * (1.0 / self.largest))
    inverses = division.divide_power_of_two(0, scales)
    bounded = tf.minimum(tf.abs(rows) * inverses[:, tf.newaxis], self.largest)
    codes = _codes(bounded, self.mantissa, self.bias)
    return [scales], codes + tf.where((rows < 0.0) & (codes > 0), 128, 0)

  def decode_groups(
    self, scales: Sequence[tf.Tensor], codes: tf.Tensor
  ) -> tf.Tensor:
    """Multiplies the values of the 8-bit floats by the scales."""
    return tf.gather(tf.constant(self.table), codes) * scales[0]


class _Fp8OnGpus(grouped.GroupedOnKernels, Fp8, twin_of=Fp8):
  """`Fp8` with GPU kernels."""

  _is_for_cpus = False


def _codes(values: tf.Tensor, mantissa: int, bias: int) -> tf.Tensor:
  """Rounds float32 magnitudes within the range to int32 codes."""
  cut = 23 - mantissa
  bits = tf.bitcast(values, tf.int32)
  odd = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, cut), 1)
  rounded = tf.bitwise.right_shift(bits + (2 ** (cut - 1) - 1) + odd, cut)
  normal = rounded - ((127 - bias) << mantissa)
  # Subnormal numbers have equal steps.
  even = tf.cast(tf.round(values * 2.0 ** (bias - 1 + mantissa)), tf.int32)
  return tf.where(values >= 2.0 ** (1 - bias), normal, even)


def _values(mantissa: int, bias: int, largest: int) -> np.ndarray:
  """Returns the value of each code, float32 [256].

  Codes above the largest finite code have its value.
  """
  codes = np.minimum(np.arange(128), largest)
  exponent, rest = codes >> mantissa, codes & (2**mantissa - 1)
  fraction = rest / 2**mantissa + (exponent > 0)
  values = np.ldexp(fraction, np.maximum(exponent, 1) - bias)
  return np.concatenate([values, -values]).astype(np.float32)


def _power_of_two_above(values: tf.Tensor) -> tf.Tensor:
  """Rounds up to a power of two in [2**-120, 2**120]."""
  bits = tf.bitcast(values, tf.int32)
  bits = tf.bitwise.bitwise_and(bits + 0x7FFFFF, 0x7F800000)
  return tf.clip_by_value(tf.bitcast(bits, tf.float32), 2.0**-120, 2.0**120)
