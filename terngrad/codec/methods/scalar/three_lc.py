"""3LC: ternary codes, a sparsity multiplier, and bytes for runs of zeros.

Lim, Andersen and Kaminsky, 3LC: Lightweight and Effective Traffic Compression
for Distributed Machine Learning, MLSys 2019, https://arxiv.org/abs/1802.07389,
section 3.1 for the values. Departures: the workers agree on the largest
magnitude, as in TernGrad, so that codes can be added during the exchange; and
this code keeps no residual: use it with `error_feedback`.
"""

import tensorflow as tf

from terngrad.codec import chain
from terngrad.codec import coded
from terngrad.codec.stages import contract
from terngrad.codec.stages import statistics
from terngrad.codec.stages import ternary
from terngrad.codec.stages import zero_runs


def three_lc(sparsity: float = 1.75) -> coded.Code:
  """Rounds to nearest of -1, 0 and +1 times sparsity * largest magnitude.

  Args:
    sparsity: the paper's sparsity multiplier s, from 1 to below 2. A larger
      multiplier sends fewer and larger values.

  Returns:
    A `coded.Code` of variable length. Use it with error feedback.

  Raises:
    ValueError: `sparsity` is out of its range.
  """
  if not 1 <= sparsity < 2:
    raise ValueError(
      f'three_lc: expected a sparsity from 1 to below 2, received {sparsity}. '
      'Use 1.75.'
    )
  # Few elements reach half the scaler, so that most codes are 0.
  return chain.chain(ThreeValues(sparsity), zero_runs.zero_runs(density=0.01))


class ThreeValues(contract.Quantizer):
  """The quantizer of `three_lc`."""

  levels = 1
  traits = contract.Traits(
    unbiased=False, lossless=False, additive=True, randomness='none'
  )
  factor = staticmethod(ternary.factor)
  dequantize = staticmethod(ternary.dequantize)

  def __init__(self, sparsity: float) -> None:
    """Creates the quantizer, with a multiplier from 1 to below 2."""
    self.name, self.sparsity = f'three_values({sparsity:g})', sparsity

  def scaler(self, stats: statistics.Statistics) -> tf.Tensor:
    """Returns sparsity * largest magnitude, the local scaler."""
    # Bounded: only an element that is not finite may make the scaler infinite.
    wanted = tf.minimum(stats.max_abs, tf.float32.max / self.sparsity)
    wanted *= self.sparsity
    return tf.where(tf.math.is_finite(stats.max_abs), wanted, stats.max_abs)

  def quantize(
    self, scaled: tf.Tensor, positions: tf.Tensor, key: tf.Tensor
  ) -> tf.Tensor:
    """Rounds to -1 or +1 from half the scaler on, else to 0."""
    # 2**22 is half the scaler in the units of `ternary.factor`.
    return tf.where(tf.abs(scaled) >= 2.0**22, tf.where(scaled < 0.0, -1, 1), 0)
