"""Ternary codes with one scaler for each sign.

The rounding is TernGrad's (Wen et al., NIPS 2017,
https://arxiv.org/abs/1705.07878, equations 2 and 4). Positive elements become 0
or the largest positive element; negative elements become 0 or the most negative
element. Trained ternary weights have two such scalers (Zhu et al., ICLR 2017,
https://arxiv.org/abs/1612.01064). Departure from TernGrad: workers do not share
scalers; each payload contains its scalers.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import grouped
from terngrad.codec.methods.scalar import qsgd
from terngrad.codec.stages import clipping
from terngrad.codec.stages import packing
from terngrad.codec.stages import statistics
from terngrad.codec.stages import ternary


class Asymmetric(grouped.Grouped):
  """Ternary codes with two scalers, unbiased up to the clipping.

  1.6 bits per element.
  """

  traits = by_variable.RANDOM
  num_scales = 2

  def __init__(self, clip_factor: float = 2.5, group_size: int = 0) -> None:
    """Creates the code.

    Args:
      clip_factor: clipping limit in standard deviations of a group; 0 turns
        clipping off.
      group_size: elements that share two scalers, 64 bits; 0 for a whole
        variable.

    Raises:
      ValueError: an option is out of its range.
    """
    self.clip = clipping.clip_by_stddev(clip_factor) if clip_factor else None
    name = f'asymmetric({clip_factor:g}, {group_size})'
    super().__init__(name, packing.base3(), group_size)

  def omega(self, num_elements: int) -> float | None:
    """Returns the bound of a quantizer with one level."""
    if self.clip:
      return None
    return qsgd.omega_of_largest(self.group_of(num_elements), 1)

  def encode_groups(
    self, rows: tf.Tensor, bits: tf.Tensor | None
  ) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Computes the scalers and rounds elements at random to -1, 0 or +1."""
    magnitude = tf.abs(rows)
    if self.clip:
      stats = statistics.group_statistics(rows, rows.shape[1])
      magnitude = tf.minimum(magnitude, self.clip.limit(stats)[:, tf.newaxis])
    negative = rows < 0.0
    scalers = [
      tf.reduce_max(tf.where(chosen, magnitude, 0.0), axis=1)
      for chosen in (~negative, negative)
    ]
    up, down = (ternary.factor(s)[:, tf.newaxis] for s in scalers)
    fires = ternary.round_by(magnitude * tf.where(negative, down, up), bits)
    return scalers, tf.where(negative, -fires, fires)

  def decode_groups(
    self, scales: Sequence[tf.Tensor], codes: tf.Tensor
  ) -> tf.Tensor:
    """Replaces +1 and -1 by the positive and the negative scaler."""
    negative = tf.where(codes < 0, -scales[1], tf.zeros(codes.shape))
    return tf.where(codes > 0, scales[0], negative)
