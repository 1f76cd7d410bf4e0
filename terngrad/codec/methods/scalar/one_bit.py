"""A bit an element, and the means of what is positive and what is negative.

Seide et al., 1-Bit Stochastic Gradient Descent and its Application to
Data-Parallel Distributed Training of Speech DNNs, Interspeech 2014, section
3.1: each value is replaced by the mean of those of its sign. Departures: the
groups are consecutive elements and not columns of matrices; what is left out is
not kept here: `error_feedback` does that.
"""

import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import grouped
from terngrad.codec.stages import packing


def one_bit(group_size=0):
  """Signs and two means for each group; zeros count as positive.

  Elements below 2**-126 (1.2e-38) count as zeros.

  Args:
    group_size: elements that share two means, 64 bits; 0 for a whole variable.

  Returns:
    A `contract.Codec`, to be used with error feedback.

  Raises:
    ValueError: `group_size` is negative.
  """
  group = grouped.Group(
    f'one_bit({group_size})',
    packing.unsigned(1),
    _encode,
    _decode,
    group_size,
    num_scales=2,
  )
  return grouped.grouped(group, by_variable.FIXED)


def _encode(rows, bits):
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


def _decode(scales, codes):
  return tf.where(codes > 0, -scales[1], scales[0])
