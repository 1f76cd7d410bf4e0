"""Clip stages: they limit a gradient's elements before quantization."""

import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import statistics


def clip_by_stddev(clip_factor: float) -> contract.Clip:
  """Clips every element to `clip_factor` standard deviations about zero.

  The limit uses the population standard deviation about the mean. A gradient
  whose standard deviation is 0 is not clipped, so that it still trains.

  As in the paper, the interval is centered at zero and not at the mean. A
  gradient whose elements are nearly equal is therefore reduced to much less
  than its mean m: by the factor m / (clip_factor * sigma). If sigma is below
  1.5e-5 of the root mean square, the gradient counts as constant and is not
  clipped (see `statistics`). The largest reduction is 65536 / clip_factor,
  26,000-fold for 2.5. Turn clipping off for such gradients.

  Args:
    clip_factor: limit in standard deviations of this gradient on this worker,
      >= 0; 0 turns clipping off. The paper uses 2.5.

  Returns:
    A `contract.Clip`.

  Raises:
    ValueError: `clip_factor` is negative or not finite.

  References:
    Wen et al., TernGrad, section 3.3, https://arxiv.org/abs/1705.07878.
  """
  return _ByStddev(clip_factor)


class _ByStddev(contract.Clip):
  clip_factor: float

  def __init__(self, clip_factor: float) -> None:
    if not 0.0 <= clip_factor < float('inf'):
      raise ValueError(
        'clip_factor is a limit in standard deviations: expected a finite '
        f'number >= 0, received {clip_factor}. Use 2.5 as in the paper, or 0 '
        'to turn clipping off.'
      )
    self.name = f'clip_by_stddev({clip_factor:g})'
    self.clip_factor = clip_factor

  def limit(self, stats: statistics.Statistics) -> tf.Tensor:
    wanted = self.clip_factor * stats.stddev
    return tf.where(wanted > 0.0, wanted, float('inf'))
