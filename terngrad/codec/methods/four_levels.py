"""Statistical quantization to 2 bits: each element becomes the mean of its bin.

Four bins of equal width divide a range of six standard deviations, and each bin
is sent as the mean of its elements. SparseLoCo (https://arxiv.org/abs/
2508.15706) and MuLoCo (https://arxiv.org/abs/2505.23725) quantize so; the bins
and the range of six are those of the public code of both groups of authors, as
the papers do not state them. With mean m, standard deviation s (of a sample:
divided by n - 1) and width w = 1.5 s the bins end at m - 1.5 w, m - 0.5 w and
m + 0.5 w, and the outer bins have no other end.

Departures: the means are float32 of float64 sums, and an element is compared
with the ends, which may place an element within a rounding of an end in the
other bin.
"""

import tensorflow as tf

from terngrad.codec.stages import packing

LEVELS = 4
BITS = packing.unsigned(2)
# Ends of the bins, in widths from the mean. Elements at the first and the last
# belong to the bin below, those at the second to the bin above, because the
# public code rounds halves to even.
_ENDS = (-1.5, -0.5, 0.5)
_RANGE = 6.0


def quantize(rows: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
  """Quantizes rows, each with four levels of its own.

  Args:
    rows: float32 [r, n], n >= 1.

  Returns:
    (four float32 [r], the levels in ascending order of their bins, 0 for an
    empty bin; int32 [r, n], the bins of the elements, from 0 to 3).
  """
  wide = tf.cast(rows, tf.float64)
  size = rows.shape[1]
  mean = tf.reduce_sum(wide, axis=1) / size
  squares = tf.reduce_sum(tf.square(wide - mean[:, tf.newaxis]), axis=1)
  width = tf.sqrt(squares / max(1, size - 1)) * (_RANGE / LEVELS)
  ends = [tf.cast(mean + end * width, tf.float32) for end in _ENDS]
  first, middle, last = (end[:, tf.newaxis] for end in ends)
  above = [rows > first, rows >= middle, rows > last]
  codes = tf.add_n([tf.cast(one, tf.int32) for one in above])
  levels = []
  for code in range(LEVELS):
    chosen = tf.equal(codes, code)
    total = tf.reduce_sum(tf.where(chosen, wide, 0.0), axis=1)
    count = tf.reduce_sum(tf.cast(chosen, tf.float64), axis=1)
    levels.append(tf.cast(tf.math.divide_no_nan(total, count), tf.float32))
  return levels, codes


def dequantize(levels: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
  """Replaces bins by their levels.

  Args:
    levels: float32 [4].
    codes: int32 [n], from 0 to 3.

  Returns:
    float32 [n].
  """
  return tf.gather(levels, codes)
