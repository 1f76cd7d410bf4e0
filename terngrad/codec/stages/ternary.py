"""TernGrad's quantizer: -1, 0 and +1 times a shared scaler."""

import math

import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import division
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import statistics

# Probabilities have 23 bits, because float32 holds half-integers below 2**23
# exactly.
_RESOLUTION_BITS = 23

# A smaller scaler counts as 0. Its inverse would overflow, and a gradient of
# 8e-31 does not change a float32 weight.
MIN_SCALER = 2.0**-100

SCALER_RULES = ('max_clipped', 'stddev')
DITHERS = ('private', 'stratified')

# In standard deviations: about the maximum of a million normal numbers.
_UNCLIPPED = 4.9


def ternarize(
  scaler_rule: str = 'max_clipped',
  clip_factor: float = 0.0,
  dither: str = 'private',
  workers: int = 0,
) -> 'Ternarize':
  """Rounds each element at random to -1, 0 or +1 times the scaler.

  Args:
    scaler_rule: 'max_clipped': the largest magnitude of the clipped gradient,
      as in the paper. 'stddev': `clip_factor` standard deviations, even if no
      element is that large, as in the 2017 code; elements are clipped only at
      the shared scaler. If this scaler is 0, the largest magnitude is used.
    clip_factor: in standard deviations, >= 0; for 'stddev' only.
    dither: relation between the draws of workers. 'private': independent.
      'stratified': for each element, draws are spread evenly over [0, 1), so
      that the errors of the workers' codes cancel partly in the mean. The
      distribution of each single worker's codes is the same.
    workers: number of workers, for 'stratified'.

  Returns:
    A `contract.Quantizer`.

  Raises:
    ValueError: the rule or the dither is unknown, `clip_factor` is negative,
      not finite or set for 'max_clipped', or 'stratified' has no number of
      workers.

  References:
    Wen et al., TernGrad, equations 1 to 4, https://arxiv.org/abs/1705.07878.
    Suresh et al., Correlated Quantization for Distributed Mean Estimation and
    Optimization, ICML 2022, https://arxiv.org/abs/2203.04925, for errors that
    cancel. Here the draws are one systematic sample with a random shift.
  """
  _check(scaler_rule, clip_factor, dither, workers)
  kind = ByStddev if scaler_rule == 'stddev' else Ternarize
  return kind(clip_factor, workers if dither == 'stratified' else 0)


def _check(
  scaler_rule: str, clip_factor: float, dither: str, workers: int
) -> None:
  """Raises ValueError for invalid options of `ternarize`."""
  if dither not in DITHERS:
    raise ValueError(
      f'dither: expected one of {", ".join(DITHERS)}, received {dither!r}.'
    )
  if dither == 'stratified' and not 1 <= workers < 2**15:
    raise ValueError(
      'dither=stratified: expected a number of workers from 1 to 32767, '
      f'received {workers}. Set the number, as in '
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
      f'received {clip_factor}. Use 2.5.'
    )
  if scaler_rule == 'max_clipped' and clip_factor:
    raise ValueError(
      'With max_clipped ternarize() does not clip: expected clip_factor 0, '
      f'received {clip_factor}. Put clip_by_stddev({clip_factor:g}) before '
      'ternarize().'
    )


def factor(scaler: tf.Tensor) -> tf.Tensor:
  """Returns the factor from values to signed probabilities in units of 2**-23.

  Args:
    scaler: float32, any shape, in the gradient's units; below 2**-100 it counts
      as 0.

  Returns:
    float32, shape of `scaler`: 2**23 / scaler, or 0.
  """
  inverse = division.divide_power_of_two(_RESOLUTION_BITS, scaler)
  return tf.where(scaler >= MIN_SCALER, inverse, 0.0)


def quantize(
  scaled: tf.Tensor, positions: tf.Tensor, key: tf.Tensor
) -> tf.Tensor:
  """Rounds each element at random to -1, 0 or +1, without bias.

  P(code != 0) = |value| / scaler, rounded to the nearest 2**-23, so that scaler
  * E[code] = value. The probability is exactly 1 for |value| >= scaler and
  exactly 0 for 0.

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
  """Rounds as `quantize` does, with draws spread evenly over the workers.

  The draw of an element is one draw common to all workers plus the stratum of
  the worker. Positive values use the complement of the draw, so that codes of
  either sign are nondecreasing in the draw. Draws that are spread out then
  cause errors that cancel partly.

  Args:
    scaled: float32 [w], as for `quantize`.
    positions: uint32 [w], as for `quantize`.
    key: uint32 [3]: two numbers that are equal for all workers, and the
      worker's `random_bits.stratum`. The stratum of a key [2] is 0.

  Returns:
    int32 [w], values in {-1, 0, 1}.
  """
  bits = random_bits.element_bits(key, positions)
  if key.shape[0] == 3:
    bits += key[2]
  return round_by(scaled, tf.where(scaled < 0.0, bits, tf.bitwise.invert(bits)))


def round_by(scaled: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
  """Rounds to -1, 0 or +1: nonzero if the draw, the upper 23 bits, is low.

  Args:
    scaled: float32, any shape, values times `factor`.
    bits: uint32 of that shape, random.

  Returns:
    int32 of that shape, values in {-1, 0, 1}.
  """
  draw = tf.bitcast(
    tf.bitwise.right_shift(bits, tf.constant(9, tf.uint32)), tf.int32
  )
  # The factor and the product are rounded, and rounding is monotone. A value
  # equal to the scaler gives 2**23 - 0.5 or more, the largest draw.
  fires = tf.cast(draw, tf.float32) + 0.5 <= tf.abs(scaled)
  return tf.where(fires, tf.where(scaled < 0.0, -1, 1), 0)


def dequantize(codes: tf.Tensor, scaler: tf.Tensor) -> tf.Tensor:
  """Multiplies codes, or sums of workers' codes, by the scaler.

  Args:
    codes: int32, any shape, magnitudes below 2**24.
    scaler: float32 [].

  Returns:
    float32, shape of `codes`.
  """
  return tf.cast(codes, tf.float32) * scaler


def gaussian_density(clip_factor: float) -> float:
  """Returns the expected fraction of nonzero codes of Gaussian gradients.

  It is E[min(|z|, c)] / c for a standard normal z: 0.3175 for c = 2.5.

  Args:
    clip_factor: c, in standard deviations; 0 for unclipped gradients, with the
      scaler of a gradient of a million elements.
  """
  c = clip_factor or _UNCLIPPED
  clipped_mean = math.sqrt(2 / math.pi) * (1 - math.exp(-(c**2) / 2))
  return clipped_mean / c + math.erfc(c / math.sqrt(2))


class Ternarize(contract.Quantizer):
  """The quantizer with the paper's scaler, the largest clipped magnitude."""

  levels = 1
  traits = contract.Traits(
    unbiased=True, lossless=False, additive=True, randomness='private'
  )
  factor = staticmethod(factor)
  dequantize = staticmethod(dequantize)

  def __init__(self, clip_factor: float = 0.0, strata: int = 0) -> None:
    """Takes checked options; `strata` is the number of workers, or 0."""
    self.clip_factor, self.strata = clip_factor, strata
    self.name = 'ternarize'
    if strata:
      self.name += f'[{strata} strata]'
      self.traits = self.traits._replace(randomness='shared')

  def scaler(self, stats: statistics.Statistics) -> tf.Tensor:
    """Returns the largest magnitude of the clipped gradient."""
    return stats.max_abs

  def quantize(
    self, scaled: tf.Tensor, positions: tf.Tensor, key: tf.Tensor
  ) -> tf.Tensor:
    """Rounds to codes, with draws in strata if `strata` is set."""
    draw = quantize_in_strata if self.strata else quantize
    return draw(scaled, positions, key)


class ByStddev(Ternarize):
  """The quantizer with the 2017 scaler, `clip_factor` standard deviations."""

  clips = True

  def __init__(self, clip_factor: float, strata: int = 0) -> None:
    """Takes checked options; `strata` is the number of workers, or 0."""
    super().__init__(clip_factor, strata)
    self.name = self.name.replace(
      'ternarize', f'ternarize(stddev, {clip_factor:g})'
    )

  def scaler(self, stats: statistics.Statistics) -> tf.Tensor:
    """Returns `clip_factor` standard deviations, or the maximum if it is 0."""
    # Bounded, because only elements that are not finite may give infinity.
    wanted = tf.minimum(self.clip_factor * stats.stddev, tf.float32.max)
    # If max_abs is NaN, the result must be NaN too.
    usable = (wanted > 0.0) & tf.math.is_finite(stats.max_abs)
    return tf.where(usable, wanted, stats.max_abs)
