"""TernGrad's quantizer: gradients of -1, 0 and +1 times a shared scaler."""

import math

import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import statistics

# Probabilities have 23 bits: half-integers below 2**23 are exact in float32.
_RESOLUTION = 2.0**23

# A scaler below this counts as 0: its inverse would overflow, and a gradient
# of 8e-31 moves no float32 weight.
MIN_SCALER = 2.0**-100

SCALER_RULES = ('max_clipped', 'stddev')
DITHERS = ('private', 'stratified')

# In standard deviations: about the largest of a million normal numbers.
_UNCLIPPED = 4.9


def ternarize(
  scaler_rule: str = 'max_clipped',
  clip_factor: float = 0.0,
  dither: str = 'private',
  workers: int = 0,
) -> 'Ternarize':
  """Rounds each element at random to -1, 0 or +1 times the scaler.

  Args:
    scaler_rule: 'max_clipped', the paper's: the largest magnitude of the
      clipped gradient. 'stddev', the 2017 code's: `clip_factor` standard
      deviations even where no element reaches that far, and no clipping but
      at the shared scaler; the largest magnitude where that is 0.
    clip_factor: only for 'stddev'; in standard deviations, >= 0.
    dither: how the draws of different workers relate. 'private': not at all.
      'stratified': for each element they are spread evenly over [0, 1), so that
      the errors of the workers' codes offset each other in the mean; every
      worker's own law stays the same.
    workers: for 'stratified', how many there are.

  Returns:
    A `contract.Quantizer`.

  Raises:
    ValueError: unknown rule or dither, a clip factor for 'max_clipped', or one
      that is negative or not finite, or no number of workers where it is
      needed.

  References:
    Wen et al., TernGrad, equations 1 to 4, https://arxiv.org/abs/1705.07878.
    Suresh et al., Correlated Quantization for Distributed Mean Estimation and
    Optimization, ICML 2022, https://arxiv.org/abs/2203.04925, for errors that
    offset each other; here the draws are one systematic sample, shifted.
  """
  _check(scaler_rule, clip_factor, dither, workers)
  kind = ByStddev if scaler_rule == 'stddev' else Ternarize
  return kind(clip_factor, workers if dither == 'stratified' else 0)


def _check(
  scaler_rule: str, clip_factor: float, dither: str, workers: int
) -> None:
  """Raises ValueError for options that `ternarize` does not take."""
  if dither not in DITHERS:
    raise ValueError(
      f'dither: expected one of {", ".join(DITHERS)}, received {dither!r}.'
    )
  if dither == 'stratified' and not 1 <= workers < 2**15:
    raise ValueError(
      'dither=stratified: expected a number of workers from 1 to 32767, '
      f'received {workers}. Say how many there are, as in '
      'dither=stratified,workers=8.'
    )
  if scaler_rule not in SCALER_RULES:
    raise ValueError(
      f'scaler_rule: expected one of {", ".join(SCALER_RULES)}, received '
      f'{scaler_rule!r}.'
    )
  if not 0.0 <= clip_factor < float('inf'):
    raise ValueError(
      'clip_factor is in standard deviations: expected a finite number >= 0, '
      f'received {clip_factor}.'
    )
  if scaler_rule == 'max_clipped' and clip_factor:
    raise ValueError(
      'With max_clipped a stage of its own clips: expected clip_factor 0, '
      f'received {clip_factor}. Put clip_by_stddev({clip_factor:g}) before '
      'ternarize().'
    )


def factor(scaler: tf.Tensor) -> tf.Tensor:
  """What turns values into signed probabilities in units of 2**-23.

  Args:
    scaler: float32, any shape, in the gradient's units; below 2**-100 it counts
      as 0.

  Returns:
    float32, shape of `scaler`: 2**23 / scaler, or 0.
  """
  return tf.where(scaler >= MIN_SCALER, _RESOLUTION / scaler, 0.0)


def quantize(
  scaled: tf.Tensor, positions: tf.Tensor, key: tf.Tensor
) -> tf.Tensor:
  """Rounds each element at random to -1, 0 or +1, without bias.

  P(code != 0) = |value| / scaler to the nearest 2**-23, so that
  scaler * E[code] = value. The probability of |value| >= scaler is exactly 1
  and that of 0 exactly 0.

  Args:
    scaled: float32 [w], values times `factor`; magnitudes above the scaler
      saturate.
    positions: uint32 [w], index of each value in its bucket.
    key: uint32 [2]. The same key gives the same codes on every device.

  Returns:
    int32 [w], values in {-1, 0, 1}.

  References:
    Wen et al., TernGrad, equation 2, https://arxiv.org/abs/1705.07878.
  """
  return round_by(scaled, random_bits.element_bits(key, positions))


def quantize_in_strata(
  scaled: tf.Tensor, positions: tf.Tensor, key: tf.Tensor
) -> tf.Tensor:
  """As `quantize`, with draws that are spread evenly over the workers.

  An element's draws are one draw for all workers plus each one's stratum. A
  positive value is rounded by the draw's complement, so that codes do not fall
  as the draw grows, for values of either sign: draws that avoid each other then
  make errors that offset each other.

  Args:
    scaled: float32 [w], as for `quantize`.
    positions: uint32 [w], as for `quantize`.
    key: uint32 [3]: two numbers that are equal for all workers, and the
      worker's `random_bits.stratum`; without the third that is 0.

  Returns:
    int32 [w], values in {-1, 0, 1}.
  """
  bits = random_bits.element_bits(key, positions)
  if key.shape[0] == 3:
    bits += key[2]
  return round_by(scaled, tf.where(scaled < 0.0, bits, tf.bitwise.invert(bits)))


def round_by(scaled: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
  """Codes of magnitude 1 where a draw, the bits' upper 23, is low enough.

  Args:
    scaled: float32, any shape, values times `factor`.
    bits: uint32 of that shape, random.

  Returns:
    int32 of that shape, values in {-1, 0, 1}.
  """
  draw = tf.bitcast(
    tf.bitwise.right_shift(bits, tf.constant(9, tf.uint32)), tf.int32
  )
  # The factor and the product are rounded, both monotonely: a value of the
  # scaler's magnitude comes out at _RESOLUTION - 0.5 or above, which is the
  # largest draw.
  fires = tf.cast(draw, tf.float32) + 0.5 <= tf.abs(scaled)
  return tf.where(fires, tf.where(scaled < 0.0, -1, 1), 0)


def dequantize(codes: tf.Tensor, scaler: tf.Tensor) -> tf.Tensor:
  """Codes, or sums of codes of several workers, times the scaler.

  Args:
    codes: int32, any shape, magnitudes below 2**24.
    scaler: float32 [].

  Returns:
    float32, shape of `codes`.
  """
  return tf.cast(codes, tf.float32) * scaler


def gaussian_density(clip_factor: float) -> float:
  """The part of codes that are not 0, for Gaussian gradients, on average.

  E[min(|z|, c)] / c for a standard normal z: 0.3175 for c = 2.5.

  Args:
    clip_factor: c, in standard deviations; 0 for gradients that are not
      clipped, whose scaler is taken for that of a million elements.

  Returns:
    float.
  """
  c = clip_factor or _UNCLIPPED
  inside = math.sqrt(2 / math.pi) * (1 - math.exp(-(c**2) / 2))
  return inside / c + math.erfc(c / math.sqrt(2))


class Ternarize(contract.Quantizer):
  """See `ternarize`."""

  levels = 1
  traits = contract.Traits(
    unbiased=True, lossless=False, additive=True, randomness='private'
  )
  factor = staticmethod(factor)
  dequantize = staticmethod(dequantize)

  def __init__(self, clip_factor: float = 0.0, strata: int = 0) -> None:
    """Takes what was checked; `strata` is the number of workers, or 0."""
    self.clip_factor, self.strata = clip_factor, strata
    self.name = 'ternarize'
    if strata:
      self.name += f'[{strata} strata]'
      self.traits = self.traits._replace(randomness='shared')

  def scaler(self, stats: statistics.Statistics) -> tf.Tensor:
    """See `contract.Quantizer`."""
    return stats.max_abs

  def quantize(
    self, scaled: tf.Tensor, positions: tf.Tensor, key: tf.Tensor
  ) -> tf.Tensor:
    """See `quantize` and `quantize_in_strata`."""
    draw = quantize_in_strata if self.strata else quantize
    return draw(scaled, positions, key)


class ByStddev(Ternarize):
  """The 2017 rule; see `ternarize`."""

  clips = True

  def __init__(self, clip_factor: float, strata: int = 0) -> None:
    """See `Ternarize`."""
    super().__init__(clip_factor, strata)
    self.name = self.name.replace(
      'ternarize', f'ternarize(stddev, {clip_factor:g})'
    )

  def scaler(self, stats: statistics.Statistics) -> tf.Tensor:
    """See `contract.Quantizer`."""
    # Bounded, since only an element that is not finite may make it infinite.
    wanted = tf.minimum(self.clip_factor * stats.stddev, tf.float32.max)
    # NaN, or a bound in its place, must not hide that max_abs is NaN.
    usable = (wanted > 0.0) & tf.math.is_finite(stats.max_abs)
    return tf.where(usable, wanted, stats.max_abs)
