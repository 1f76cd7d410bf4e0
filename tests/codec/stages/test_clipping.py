"""Clipping at standard deviations."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import chain
from terngrad.codec.stages import clipping
from terngrad.codec.stages import float_words
from terngrad.codec.stages import statistics
from tests.codec import conformance


def clipped(gradient, *clip_factors):
  """What a chain that only clips delivers."""
  clips = [clipping.clip_by_stddev(c) for c in clip_factors]
  codec = chain.chain(*clips, float_words.float32_words())
  return conformance.round_trip(codec, np.asarray(gradient, np.float32))


# Mean 0 and standard deviation 2: 4 * 1 + 4 * 1 + 2 * 16 = 40 = 10 * 2**2.
TEN = np.array([1, 1, 1, 1, -1, -1, -1, -1, 4, -4], np.float32)


@pytest.mark.parametrize(
  ('clip_factor', 'largest'), [(1.5, 3), (1, 2), (0.25, 0.5), (2, 4), (9, 4)]
)
def test_clips_at_clip_factor_standard_deviations(clip_factor, largest):
  expected = np.clip(TEN, -largest, largest)
  np.testing.assert_array_equal(clipped(TEN, clip_factor), expected)


def test_deviation_is_about_the_mean_and_the_limit_about_zero():
  # [9, 11]: deviation 1 about the mean of 10; both are cut to 2.5.
  np.testing.assert_array_equal(clipped([9.0, 11.0], 2.5), [2.5, 2.5])


def test_clip_factor_zero_is_identity():
  np.testing.assert_array_equal(clipped(TEN, 0), TEN)


@pytest.mark.parametrize('size', [1, 2, 100, 10**5])
def test_constant_is_not_clipped(size):
  gradient = np.full(size, 0.1, np.float32)
  np.testing.assert_array_equal(clipped(gradient, 2.5), gradient)


def test_nearly_constant_is_clipped_until_it_counts_as_constant():
  """As the docstring says: at most 26,000-fold, and then not at all."""

  def nearly(deviation):
    return np.float32(1 + deviation * np.array([1, -1, 1, -1]))

  cut = clipped(nearly(1.6e-5), 2.5)
  np.testing.assert_allclose(cut, 2.5 * 1.6e-5, rtol=0.01)
  assert 1 / cut.max() < 65536 / 2.5
  np.testing.assert_array_equal(clipped(nearly(1.4e-5), 2.5), nearly(1.4e-5))


def test_tighter_of_two_clips_applies():
  expected = np.clip(TEN, -2, 2)
  np.testing.assert_array_equal(clipped(TEN, 1, 1.5), expected)
  np.testing.assert_array_equal(clipped(TEN, 1.5, 1), expected)


def test_input_is_untouched():
  gradient = tf.Variable(TEN)
  codec = chain.chain(clipping.clip_by_stddev(1), float_words.float32_words())
  local_probe = codec.probe([gradient])
  codec.encode([gradient], local_probe, local_probe, conformance.bucket_key())
  np.testing.assert_array_equal(gradient, TEN)


def test_limit_of_zero_deviation_is_infinite():
  stats = statistics.Statistics(tf.constant(0.0), tf.constant(3.0))
  assert clipping.clip_by_stddev(2.5).limit(stats) == float('inf')


@pytest.mark.parametrize('clip_factor', [-1.0, -1e-9, np.inf, np.nan])
def test_factor_out_of_range_is_an_error_with_a_remedy(clip_factor):
  with pytest.raises(
    ValueError, match=rf'>= 0, received {clip_factor}. Use 2.5 as in the paper'
  ):
    clipping.clip_by_stddev(clip_factor)


def test_name_shows_the_factor():
  assert clipping.clip_by_stddev(2.5).name == 'clip_by_stddev(2.5)'
