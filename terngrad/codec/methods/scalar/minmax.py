"""The least and the largest of each group, and even steps between them.

Caffe2's row-wise quantizer with random rounding (`FloatToFusedRandRowwise`),
and int8 with a minimum and a maximum. Departures: a row is `group_size`
consecutive elements, since rows of layers have very different lengths; and the
steps have 16 significant bits, rounded up.
"""

import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import grouped
from terngrad.codec.stages import packing
from terngrad.native import grouped_ops


def minmax(bits=8, group_size=512):
  """Unsigned integers of a few bits between two float32 a group.

  Args:
    bits: of an element: 1, 2, 4 or 8.
    group_size: elements that share the two, 64 bits; 0 for a whole variable.

  Returns:
    A `contract.Codec`, unbiased for magnitudes up to 2**126.

  Raises:
    ValueError: an option is out of its range.
  """
  if bits not in (1, 2, 4, 8):
    raise ValueError(
      f'minmax: expected bits of 1, 2, 4, 8, received {bits}. Use 4.'
    )
  levels = 2**bits - 1

  def encode(rows, draws):
    rows = tf.clip_by_value(rows, -grouped.LARGEST, grouped.LARGEST)
    least, largest = tf.reduce_min(rows, axis=1), tf.reduce_max(rows, axis=1)
    least = tf.where(least == 0.0, 0.0, least)  # of either sign
    steps = grouped.step(largest - least, levels)
    above = rows - least[:, tf.newaxis]
    codes = grouped.round_to_levels(above, steps, levels, draws)
    return [least, steps], codes

  def decode(scales, codes):
    least, steps = scales
    steps = grouped.known_step(steps, levels)
    return tf.cast(codes, tf.float32) * steps + least

  name = f'minmax({bits}, {group_size})'
  group = grouped.Group(
    name,
    packing.unsigned(bits),
    encode,
    decode,
    group_size,
    num_scales=2,
    signed=True,
    native=grouped_ops.Code(
      grouped_ops.SPANS, levels, 2**bits, 32 // bits, group_size
    ),
  )
  return grouped.grouped(group, by_variable.DRAWN)
