"""A bit an element, and the means of what is positive and what is negative.

Seide et al., 1-Bit Stochastic Gradient Descent and its Application to
Data-Parallel Distributed Training of Speech DNNs, Interspeech 2014, section
3.1: each value is replaced by the mean of those of its sign. Departures: the
groups are consecutive elements and not columns of matrices; what is left out is
not kept here: `error_feedback` does that.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import coded
from terngrad.codec.methods import grouped
from terngrad.codec.stages import packing


def one_bit(group_size: int = 0) -> coded.Code:
  """Signs and two means for each group; zeros count as positive.

  Elements below 2**-126 (1.2e-38) count as zeros.

  Args:
    group_size: elements that share two means, 64 bits; 0 for a whole variable.

  Returns:
    A `coded.Code`, to be used with error feedback.

  Raises:
    ValueError: `group_size` is negative.
  """
  return OneBit(f'one_bit({group_size})', packing.unsigned(1), group_size)


class OneBit(grouped.Grouped):
  """See `one_bit`."""

  num_scales = 2

  def encode_groups(
    self, rows: tf.Tensor, bits: tf.Tensor | None
  ) -> tuple[list[tf.Tensor], tf.Tensor]:
    """See `grouped.Grouped`."""
    del bits  # nothing is drawn
    negative = tf.bitcast(rows, tf.int32) < 0
    wide = tf.cast(tf.abs(rows), tf.float64)
    means = []
    for chosen in (~negative, negative):
      count = tf.reduce_sum(tf.cast(chosen, tf.float64), axis=1)
      total = tf.reduce_sum(tf.where(chosen, wide, 0.0), axis=1)
      mean = tf.math.divide_no_nan(total, count)
      means.append(tf.cast(mean, tf.float32))
    return means, tf.cast(negative, tf.int32)

  def decode_groups(
    self, scales: Sequence[tf.Tensor], codes: tf.Tensor
  ) -> tf.Tensor:
    """See `grouped.Grouped`."""
    return tf.where(codes > 0, -scales[1], scales[0])
