"""2 bits for each element: four bins, each sent as the mean of its elements.

The quantizer of MuLoCo, Thérien et al., 2025,
https://arxiv.org/abs/2505.23725, which finds it better at 2 bits than levels at
equal distances; `four_levels` has the formulas and their source. This code
keeps no residual: use it with `error_feedback`. By default a variable is one
group, as in the class for whole tensors of the authors' public code, whose
experiments also take each row of a matrix as a group.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.methods import four_levels
from terngrad.codec.methods import grouped


class Statistical(grouped.Grouped):
  """Bins of the standard deviation and their means, for each group.

  Use it with error feedback. Elements below 2**-126 (1.2e-38) count as zeros.
  """

  traits = grouped.Grouped.traits._replace(dense=True)
  num_scales = four_levels.LEVELS
  signed = True

  def __init__(self, group_size: int = 0) -> None:
    """Creates the code.

    Args:
      group_size: elements that share four means, 128 bits; 0 for a whole
        variable.

    Raises:
      ValueError: `group_size` is negative.
    """
    super().__init__(f'statistical({group_size})', four_levels.BITS, group_size)

  def encode_groups(
    self, rows: tf.Tensor, bits: tf.Tensor | None
  ) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Computes the means and the bins."""
    return four_levels.quantize(rows)

  def decode_groups(
    self, scales: Sequence[tf.Tensor], codes: tf.Tensor
  ) -> tf.Tensor:
    """Replaces each bin by its mean."""
    found = tf.broadcast_to(scales[0], tf.shape(codes))
    for code, scale in enumerate(scales[1:], 1):
      found = tf.where(tf.equal(codes, code), scale, found)
    return found
