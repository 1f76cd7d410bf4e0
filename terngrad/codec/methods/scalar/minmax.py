"""Even steps between the minimum and the maximum of each group.

Caffe2's row-wise quantizer with random rounding (`FloatToFusedRandRowwise`),
and int8 with a minimum and a maximum. Departures: a row is `group_size`
consecutive elements, since the rows of layers have very different lengths; and
the steps have 16 significant bits, rounded up.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import grouped
from terngrad.codec.stages import packing
from terngrad.native import grouped_ops


class Minmax(grouped.Grouped):
  """Unsigned integers of a few bits, with a minimum and a step for each group.

  Unbiased for magnitudes from 2**-91 to 2**126: in a group whose largest one is
  smaller, every element may decode to the least one. In a group with NaN the
  minimum is NaN, and all elements decode to it.
  """

  traits = by_variable.RANDOM._replace(dense=True)
  num_scales = 2
  signed = True
  scales_made = f'minima from -2**126 without -0, and {grouped.STEPS_MADE}'

  def __init__(self, bits: int = 8, group_size: int = 512) -> None:
    """Creates the code.

    Args:
      bits: bits of an element: 1, 2, 4 or 8.
      group_size: elements that share a minimum and a step, 64 bits; 0 for a
        whole variable.

    Raises:
      ValueError: an option is out of its range.
    """
    if bits not in (1, 2, 4, 8):
      raise ValueError(
        f'minmax: expected 1, 2, 4 or 8 bits, received {bits}. Use '
        'minmax:bits=4.'
      )
    name = f'minmax({bits}, {group_size})'
    super().__init__(name, packing.unsigned(bits), group_size)
    self.num_levels = 2**bits - 1
    self.kernels = grouped_ops.GroupedCode(
      grouped_ops.SPANS, self.num_levels, 2**bits, 32 // bits, group_size
    )

  def omega(self, num_elements: int) -> float:
    """Returns the bound, which gradients between -M and M reach.

    Of d elements the least is exact, and the largest up to the rounding of the
    step. The others have the variance step^2 / 4 at most, and step^2 is at most
    2 |g|^2 / levels^2.
    """
    size, levels = self.group_of(num_elements), self.num_levels
    others = max(0, size - 2) / (2 * levels**2)
    largest = 2 * grouped.STEP_ROUNDING / levels if size > 1 else 0
    return (others + largest) * grouped.ROUNDED_UP

  def as_encoded(self, scales: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Limits minima and steps."""
    least, steps = scales
    least = tf.clip_by_value(least, -grouped.LARGEST, grouped.LARGEST)
    return [
      tf.where(least == 0.0, 0.0, least),
      grouped.limit_steps(steps, self.num_levels),
    ]

  def encode_groups(
    self, rows: tf.Tensor, bits: tf.Tensor | None
  ) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Computes minima and steps, and rounds elements at random to levels."""
    with_nan = grouped.with_nan(rows)
    rows = tf.clip_by_value(rows, -grouped.LARGEST, grouped.LARGEST)
    least, largest = tf.reduce_min(rows, axis=1), tf.reduce_max(rows, axis=1)
    least = tf.where(least == 0.0, 0.0, least)  # -0 becomes +0
    least = tf.where(with_nan, float('nan'), least)
    steps = grouped.step(largest - least, self.num_levels)
    steps = tf.where(with_nan, 0.0, steps)
    above = rows - least[:, tf.newaxis]
    codes = grouped.round_to_levels(above, steps, self.num_levels, bits)
    return [least, steps], codes

  def decode_groups(
    self, scales: Sequence[tf.Tensor], codes: tf.Tensor
  ) -> tf.Tensor:
    """Multiplies the integers by the steps and adds the minima."""
    least, steps = scales
    steps = grouped.limit_steps(steps, self.num_levels)
    return tf.cast(codes, tf.float32) * steps + least


class _MinmaxOnKernels(grouped.GroupedOnKernels, Minmax, twin_of=Minmax):
  """`Minmax` with native kernels."""
