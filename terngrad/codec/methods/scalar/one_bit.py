"""1-bit SGD: signs, and the means of the positive and negative elements.

Seide et al., 1-Bit Stochastic Gradient Descent and its Application to
Data-Parallel Distributed Training of Speech DNNs, Interspeech 2014, section
3.1: each value is replaced by the mean of the values of its sign. Departures:
the groups are consecutive elements and not columns of matrices; and this code
keeps no residual: use it with `error_feedback`.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import grouped
from terngrad.codec.stages import packing


class OneBit(grouped.Grouped):
  """Signs and two means for each group; zeros count as positive.

  Use it with error feedback. Elements below 2**-126 (1.2e-38) count as zeros.
  """

  traits = by_variable.DETERMINISTIC._replace(dense=True)
  num_scales = 2

  def __init__(self, group_size: int = 0) -> None:
    """Creates the code.

    Args:
      group_size: elements that share two means, 64 bits; 0 for a whole
        variable.

    Raises:
      ValueError: `group_size` is out of its range.
    """
    super().__init__(f'one_bit({group_size})', packing.unsigned(1), group_size)

  def encode_groups(
    self, rows: tf.Tensor, bits: tf.Tensor | None
  ) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Computes the means and the signs (1 for negative elements)."""
    # Compared as integers, because compiled code may flush subnormals to zero.
    signs = tf.bitcast(rows, tf.int32)
    negative = (signs < 0) & (signs != tf.int32.min)
    wide = tf.cast(tf.abs(rows), tf.float64)
    means = []
    for chosen in (~negative, negative):
      count = tf.reduce_sum(tf.cast(chosen, tf.float64), axis=1)
      total = tf.reduce_sum(tf.where(chosen, wide, 0.0), axis=1)
      means.append(tf.cast(tf.math.divide_no_nan(total, count), tf.float32))
    return means, tf.cast(negative, tf.int32)

  def decode_groups(
    self, scales: Sequence[tf.Tensor], codes: tf.Tensor
  ) -> tf.Tensor:
    """Replaces each sign by the mean of its elements."""
    return tf.where(codes > 0, -scales[1], scales[0])
