"""QSGD: multiples of a fraction of each group's norm, rounded at random.

Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding, NeurIPS 2017, https://arxiv.org/abs/1610.02132, section 3.1, and
section 4 for groups ("buckets") and the largest magnitude as a norm.
Departures: integers are packed as digits of fixed length and not with Elias
codes; and the step, norm / levels, has 16 significant bits, rounded up.
"""

import math
from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import grouped
from terngrad.codec.stages import packing
from terngrad.codec.stages import statistics
from terngrad.native import grouped_ops

NORMS = ('l2', 'max')


class Qsgd(grouped.Grouped):
  """Rounds elements to multiples of the group's norm / levels, unbiased."""

  traits = by_variable.RANDOM
  scales_made = grouped.STEPS_MADE

  def __init__(
    self, levels: int = 7, group_size: int = 512, norm: str = 'max'
  ) -> None:
    """Creates the code.

    Args:
      levels: s, from 1 to 255; codes are digits of base 2 s + 1. 7 gives 4 bits
        per element.
      group_size: elements that share a norm, 32 bits; 0 for a whole variable.
      norm: 'l2', the paper's; 'max', the largest magnitude, never above 'l2'.

    Raises:
      ValueError: an option is out of its range.
    """
    if not 1 <= levels <= 255 or norm not in NORMS:
      raise ValueError(
        'qsgd: expected levels from 1 to 255 and norm l2 or max, received '
        f'{levels} and {norm!r}. Use qsgd:levels=7,norm=max for 4 bits.'
      )
    digits = packing.digits(levels)
    super().__init__(
      f'qsgd({levels}, {norm}, {group_size})', digits, group_size
    )
    # Fewer than 1 % of normally distributed elements become zero.
    self.traits = self.traits._replace(dense=norm == 'max' and levels > 127)
    self.num_levels, self.norm = levels, norm
    self.kernels = grouped_ops.GroupedCode(
      grouped_ops.STEPS,
      levels,
      2 * levels + 1,
      digits.elements_per_word,
      group_size,
      is_norm=norm == 'l2',
    )

  def omega(self, num_elements: int) -> float:
    """Returns the bound of lemma 3.1, or for norm max a smaller one."""
    size, levels = self.group_of(num_elements), self.num_levels
    if self.norm == 'max':
      # The largest magnitude is slightly below the last level.
      rounded = grouped.STEP_ROUNDING / levels * grouped.ROUNDED_UP
      return omega_of_largest(size, levels) + rounded
    bound = min(size / (4 * levels**2), math.sqrt(size) / levels)
    return bound * grouped.ROUNDED_UP

  def as_encoded(self, scales: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Limits the steps."""
    return [grouped.limit_steps(scales[0], self.num_levels)]

  def encode_groups(
    self, rows: tf.Tensor, bits: tf.Tensor | None
  ) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Computes the steps and rounds elements at random to multiples of them."""
    with_nan = grouped.with_nan(rows)
    rows = tf.clip_by_value(rows, -grouped.LARGEST, grouped.LARGEST)
    steps = grouped.step(_norms(rows, self.norm), self.num_levels)
    steps = tf.where(with_nan, 0.0, steps)
    codes = grouped.round_to_levels(tf.abs(rows), steps, self.num_levels, bits)
    return [steps], tf.where(rows < 0.0, -codes, codes)

  def decode_groups(
    self, scales: Sequence[tf.Tensor], codes: tf.Tensor
  ) -> tf.Tensor:
    """Multiplies the codes by the steps."""
    steps = grouped.limit_steps(scales[0], self.num_levels)
    return tf.cast(codes, tf.float32) * steps


class _QsgdOnKernels(grouped.GroupedOnKernels, Qsgd, twin_of=Qsgd):
  """`Qsgd` with native kernels."""


def omega_of_largest(size: int, levels: int) -> float:
  """Returns the bound for norm max: (sqrt(1 + (d - 1) / s^2) - 1) / 2.

  With the largest magnitude 1 and levels 1/s apart, an element y has at most
  the variance y (1/s - y), or less if it is above 1/s. The bound is the largest
  sum of the d - 1 variances, divided by 1 + (d - 1) y^2.
  """
  ratio = max(0, size - 1) / levels**2
  return (math.sqrt(1 + ratio) - 1) / 2 * grouped.ROUNDED_UP


def _norms(rows: tf.Tensor, norm: str) -> tf.Tensor:
  if norm == 'max':
    norms = tf.reduce_max(tf.abs(rows), axis=1)
  else:
    norms = statistics.norms_of_rows(rows)
  return tf.minimum(norms, grouped.LARGEST)
