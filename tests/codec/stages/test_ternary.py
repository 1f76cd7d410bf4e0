"""TernGrad's quantizer: its law, its edges, and controls of the tests."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from terngrad.codec import chain
from terngrad.codec.methods import registry
from terngrad.codec.stages import clipping
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import statistics
from terngrad.codec.stages import ternary
from terngrad.codec.stages import wire
from tests.codec import conformance

LARGEST_DRAW = 2**32 - 1
# Of seed 7, folded with 11: computed with Python's integers.
GOLDEN_CODES = '+-+-+00-+-+0+0+-0000000-'


# A code a word: compiles fastest where packing does not matter.
class Plain(wire.Packing):
  name = 'plain'
  elements_per_word = 1
  levels = 1

  def pack(self, planes):
    return planes[0]

  def unpack(self, words):
    return [words]


PLAIN = Plain()


@pytest.mark.slow
class TestUnclipped(
  conformance.TernaryConformance, conformance.DrawConformance
):
  """c = 0: the scaler is the largest magnitude."""

  per_word = 20

  def make(self):
    return registry.ternary(clip_factor=0)

  def local_scaler(self, gradient):
    return np.abs(gradient).max()


class Stddev(conformance.TernaryAnswers):
  """The 2017 rule: only values above the shared scaler are cut."""

  per_word = 20

  def make(self):
    return registry.ternary(scaler_rule='stddev')

  def local_scaler(self, gradient):
    return 2.5 * gradient.std()

  def limit(self, local_probe, shared_probe):
    del local_probe
    return shared_probe


class TestDrawsOfStddev(Stddev, conformance.DrawConformance):
  pass


# Packed as any other code of base 3.
@pytest.mark.slow
class TestStddev(Stddev, conformance.TernaryConformance):
  pass


@pytest.mark.parametrize(
  ('rule', 'arrives_as'), [('max_clipped', 5.0), ('stddev', 11.0)]
)
def test_outlier_is_clipped_by_its_worker_or_by_the_scaler_alone(
  rule, arrives_as
):
  # Element 0 is 11; sigma is 2, so that 2.5 sigma is 5. With a shared scaler
  # of 22 it fires half the time if only that bounds it.
  rest = np.sqrt(4 - 121 / 100 + 0.11**2)
  gradient = np.full(100, rest, np.float32)
  gradient[1::2] *= -1
  gradient[0] = 11.0
  gradient = scaled_to(gradient, stddev=2.0, largest=11.0)
  if rule == 'stddev':
    codec = chain.chain(ternary.ternarize(rule, 2.5), PLAIN)
  else:
    clip = clipping.clip_by_stddev(2.5)
    codec = chain.chain(clip, ternary.ternarize(rule), PLAIN)
  local_probe = conformance.probe(codec, gradient).numpy()
  np.testing.assert_allclose(local_probe, 5.0, rtol=1e-5)
  sample = conformance.sampler(codec, gradient.size)
  drawn = sample(gradient, local_probe, np.float32(22.0))
  mean = gradient.astype(np.float64)
  mean[0] = arrives_as
  conformance.check_law(drawn, mean, 22.0)


def scaled_to(gradient, stddev, largest):
  """`gradient` with all but element 0 scaled to give this deviation."""
  low, high = 0.0, 10.0
  for _ in range(60):
    middle = (low + high) / 2
    trial = np.concatenate([[largest], middle * gradient[1:]])
    low, high = (middle, high) if trial.std() < stddev else (low, middle)
  return trial.astype(np.float32)


# Controls: wrong codecs, which the check of the law has to find.


def codec_with(quantizer):
  """The unclipped codec with another quantizer."""
  return chain.chain(quantizer, PLAIN)


class ScaledThreshold(ternary.Ternarize):
  def __init__(self, by):
    super().__init__()
    self.by = by

  def quantize(self, scaled, positions, key):
    return ternary.quantize(scaled * self.by, positions, key)


class CoarseDraws(ternary.Ternarize):
  """Draws of 4 bits: the probability is rounded up to sixteenths."""

  def factor(self, scaler):
    return 1 / scaler

  def quantize(self, scaled, positions, key):
    bits = random_bits.element_bits(key, positions)
    draw = tf.bitwise.right_shift(bits, tf.constant(28, tf.uint32))
    fires = tf.cast(draw, tf.float32) < 16 * tf.abs(scaled)
    return tf.where(fires, tf.cast(tf.sign(scaled), tf.int32), 0)


class OneDrawForAll(ternary.Ternarize):
  def quantize(self, scaled, positions, key):
    return ternary.quantize(scaled, tf.zeros_like(positions), key)


class HalfAsOftenTwiceAsLarge(ternary.Ternarize):
  def quantize(self, scaled, positions, key):
    return ternary.quantize(0.5 * scaled, positions, key)

  def dequantize(self, codes, scaler):
    return 2.0 * ternary.dequantize(codes, scaler)


class UnfairToOneSign(ternary.Ternarize):
  """2 % more of +1 than there should be."""

  def quantize(self, scaled, positions, key):
    unfair = tf.where(scaled > 0, 1.02 * scaled, scaled)
    return ternary.quantize(unfair, positions, key)


CONTROLS = {
  'threshold 2 % high': (ScaledThreshold(1.02), conformance.check_mean),
  'threshold 1 % low': (ScaledThreshold(0.99), conformance.check_mean),
  'draws of 4 bits': (CoarseDraws(), conformance.check_mean),
  'positive values 2 % high': (UnfairToOneSign(), conformance.check_mean),
  'variance doubled': (
    HalfAsOftenTwiceAsLarge(),
    conformance.check_variance,
  ),
  'one draw for all': (OneDrawForAll(), conformance.check_independence),
}


@pytest.mark.statistical
@pytest.mark.parametrize('name', CONTROLS)
@pytest.mark.gate_every(3)
def test_check_law_finds_wrong_codecs(name):
  quantizer, check = CONTROLS[name]
  gradient = TestUnclipped().gradient()
  local_probe = np.abs(gradient).max()
  drawn = conformance.sampler(codec_with(quantizer), gradient.size)(
    gradient, local_probe, local_probe
  )
  with pytest.raises(AssertionError, match='times the bound|chi-square'):
    check(drawn, gradient.astype(np.float64), float(local_probe))


def test_check_law_accepts_the_correct_codec():
  gradient = TestUnclipped().gradient()
  local_probe = np.abs(gradient).max()
  sample = conformance.sampler(codec_with(ternary.ternarize()), gradient.size)
  drawn = sample(gradient, local_probe, local_probe)
  conformance.check_law(drawn, gradient.astype(np.float64), float(local_probe))


# The quantizer alone.


def position_of(key, bits):
  """The element that draws `bits`: undoes the hash, in Python's integers."""
  word = 2**32

  def undo_xor_shift(value, distance):
    found = value
    for _ in range(32 // distance):
      found = value ^ (found >> distance)
    return found

  first, second = (int(k) for k in key)
  x = undo_xor_shift(bits, 16)
  x = undo_xor_shift(x * pow(0x846CA68B, -1, word) % word, 15)
  x = (x - second) % word
  x = undo_xor_shift(x * pow(0x7FEB352D, -1, word) % word, 16)
  return (x - first) % word


def code_at_draw(value, scaler, bits):
  """The code of `value` where the draw is the worst or the best there is."""
  key = random_bits.seed_key(5)
  position = tf.constant([position_of(key.numpy(), bits)], tf.uint32)
  assert random_bits.element_bits(key, position).numpy() == bits
  scaled = value * ternary.factor(tf.constant([scaler]))
  return ternary.quantize(scaled, position, key).numpy()[0]


@hypothesis.settings(
  database=None, deadline=None, derandomize=True, max_examples=40
)
@hypothesis.given(
  strategies.floats(2.0**-100, float(np.finfo('f').max), width=32)
)
@hypothesis.example(2.0**-100)
@hypothesis.example(float(np.finfo('f').max))
def test_magnitude_of_scaler_fires_at_the_largest_draw(scaler):
  assert code_at_draw(scaler, scaler, LARGEST_DRAW) == 1
  assert code_at_draw(-scaler, scaler, LARGEST_DRAW) == -1


def test_zero_does_not_fire_at_the_least_draw():
  for value in (0.0, -0.0):
    assert code_at_draw(value, 1.0, 0) == 0


def test_least_probability_fires_only_at_the_least_draw():
  # Half a step of 2**-23 is where rounding to the nearest probability turns.
  assert code_at_draw(2.0**-24, 1.0, 0) == 1
  assert code_at_draw(2.0**-24 * (1 - 2**-20), 1.0, 0) == 0
  assert code_at_draw(2.0**-24, 1.0, 1 << 9) == 0


def test_magnitude_above_scaler_saturates():
  for value in (1.5, 100.0, 3e38):
    assert code_at_draw(value, 1.0, LARGEST_DRAW) == 1
    assert code_at_draw(-value, 1.0, LARGEST_DRAW) == -1


def test_ternarize_codes_are_golden():
  # The stream and the threshold, pinned: other codes would break every pair
  # of workers that run different versions.
  key = random_bits.fold_in(random_bits.seed_key(7), tf.constant(11))
  scaled = tf.constant([1.5, -1.5] * 12) * ternary.factor(tf.constant(3.0))
  positions = tf.bitcast(tf.range(24), tf.uint32)
  codes = ternary.quantize(scaled, positions, key)
  signs = ''.join('-0+'[code + 1] for code in codes.numpy())
  assert signs == GOLDEN_CODES


def test_dequantize_is_the_product():
  codes = tf.constant([-3, 0, 7, 2**24 - 1])
  decoded = ternary.dequantize(codes, tf.constant(0.25)).numpy()
  assert decoded.dtype == np.float32
  np.testing.assert_array_equal(decoded, [-0.75, 0, 1.75, 2**22 - 0.25])


# The scaler.


@pytest.mark.parametrize(
  ('rule', 'clip_factor', 'stddev', 'max_abs', 'expected'),
  [
    ('max_clipped', 0, 2.0, 7.0, 7.0),
    ('max_clipped', 0, 0.0, 7.0, 7.0),
    ('stddev', 2.5, 2.0, 7.0, 5.0),
    ('stddev', 2.5, 2.0, 3.0, 5.0),  # even where no element reaches that far
    ('stddev', 2.5, 0.0, 7.0, 7.0),
    ('stddev', 0, 2.0, 7.0, 7.0),
    ('stddev', 2.5, 0.0, 0.0, 0.0),
    ('stddev', 2.5, np.nan, np.nan, np.nan),
    ('max_clipped', 0, np.nan, np.nan, np.nan),
  ],
)
def test_scaler_follows_its_rule(rule, clip_factor, stddev, max_abs, expected):
  stats = statistics.Statistics(tf.constant(stddev), tf.constant(max_abs))
  scaler = ternary.ternarize(rule, clip_factor).scaler(stats)
  np.testing.assert_array_equal(scaler, np.float32(expected))


def test_unknown_scaler_rule_is_an_error_that_lists_the_known():
  with pytest.raises(
    ValueError, match=r"expected one of max_clipped, stddev, received 'max'"
  ):
    ternary.ternarize('max')


def test_clip_factor_with_max_clipped_is_an_error_with_a_remedy():
  with pytest.raises(ValueError, match=r'Put clip_by_stddev\(2\.5\) before'):
    ternary.ternarize('max_clipped', 2.5)


def test_scaler_below_the_minimum_gives_zeros():
  """As `contract.Traits` says of codes without bias."""
  for size, fires in ((0.99 * ternary.MIN_SCALER, 0), (ternary.MIN_SCALER, 1)):
    decoded = conformance.round_trip(registry.ternary(0), [size, -size])
    np.testing.assert_array_equal(
      decoded, np.float32([fires * size, -fires * size])
    )
