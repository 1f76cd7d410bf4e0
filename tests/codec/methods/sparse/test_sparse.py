"""Sparse codes against their papers' formulas."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.codec.stages import tracing
from tests.codec import conformance
from tests.codec import rounds


def values_of(size):
  return conformance.rng().standard_t(3, size=size).astype(np.float32)


def largest(values, number):
  return np.argsort(-np.abs(values), kind='stable')[:number]


def decoded(text, values):
  return conformance.round_trip(registry.parse(text), values)


@pytest.mark.parametrize('size', [1, 2, 99, 1003])
def test_stc_is_the_sign_times_the_mean_of_the_largest(size):
  values = values_of(size)
  chosen = largest(values, -(-size // 20))
  mean = np.abs(values[chosen].astype(np.float64)).mean()
  expected = np.zeros(size)
  expected[chosen] = np.sign(values[chosen]) * mean
  actual = decoded('stc:ratio=0.05', values)
  np.testing.assert_allclose(actual, expected, rtol=2.0**-23)
  assert np.count_nonzero(actual) == len(chosen)


def test_stc_encodes_zero_as_positive():
  values = np.array([-4, 0, 4, -0.0], np.float32)
  actual = decoded('stc:ratio=1', values)
  np.testing.assert_array_equal(actual, [-2, 2, 2, -2])


@pytest.mark.parametrize('text', ['stc', 'threshold', 'topk', 'sparseloco'])
def test_more_elements_than_int32_indices_are_refused(text):
  code = registry.parse(text)
  for made in (code, code.on_kernels()):
    with pytest.raises(
      ValueError, match=r'at most 2147483647 .*2147483648\. G'
    ):
      made.messages(((2**30,), (2**15, 2**15)))
    assert made.messages(((2**15,),))


def test_stc_takes_less_than_ten_bits_per_sent_element():
  codec = registry.parse('stc')
  assert codec.bits(10**6, 2) < 9.7e4


@pytest.mark.parametrize(
  ('index', 'word', 'message'),
  [
    (0, np.float32(-1).view(np.int32), 'expected a finite magnitude >= 0'),
    (0, np.float32(np.nan).view(np.int32), 'expected a finite magnitude >= 0'),
    (1, -1, r'unsigned\(1\): expected code 0 past the last'),
    (-1, 0, 'expected 10 indices below 200 in ascending order'),
    (-1, -1, 'expected 10 indices below 200 in ascending order'),
  ],
)
def test_damaged_stc_payload_is_refused(index, word, message):
  codec = registry.parse('stc:ratio=0.05')
  conformance.check_corruption_is_refused(
    codec, values_of(200), index, word, message
  )


def test_threshold_sends_only_elements_above_it():
  values = values_of(1000)
  codec = registry.parse('threshold:above=2,capacity=0.5')
  words, _ = conformance.encode(codec, values)
  above = np.abs(values) >= 2
  assert int(codec.sent_words(words)) == 1 + 2 * np.count_nonzero(above)
  actual = decoded('threshold:above=2,capacity=0.5', values)
  np.testing.assert_array_equal(actual, np.where(above, values, 0))


def test_threshold_sends_the_first_element_alone():
  values = np.array([5, 1, -1, 1, 1, 1, 1, 1], np.float32)
  actual = decoded('threshold:above=2,capacity=0.5', values)
  np.testing.assert_array_equal(actual, [5, 0, 0, 0, 0, 0, 0, 0])


def test_threshold_drops_the_smallest_above_the_capacity():
  values = values_of(1000)
  actual = decoded('threshold:above=0.01,capacity=0.1', values)
  chosen = largest(values, 100)
  np.testing.assert_array_equal(np.flatnonzero(actual), np.sort(chosen))


@pytest.mark.parametrize(
  ('index', 'word', 'message'),
  [
    (1, 100, 'expected distinct indices below 100'),
    (3, -1, 'expected distinct indices below 100'),
    (2, np.float32(np.nan).view(np.int32), 'threshold'),
    (1, 99, 'in ascending order'),
  ],
)
def test_damaged_threshold_payload_is_refused(index, word, message):
  text = 'threshold:above=1,capacity=0.5'
  codec = registry.parse(text)
  conformance.check_corruption_is_refused(
    codec, values_of(100), index, word, message
  )


@pytest.mark.parametrize('unbiased', [0, 1])
def test_randomk_sends_the_same_indices_from_all_workers(unbiased):
  shapes = ((30, 10), (7,))
  text = f'randomk:ratio=0.1,unbiased={unbiased}'
  codec = rounds.codec_of(registry.method(text), shapes)
  assert codec.num_words == 30 + 1
  rng = conformance.rng()
  values = [
    [rng.normal(size=s).astype(np.float32) for s in shapes] for _ in range(3)
  ]
  steps = []
  for number in range(2):
    means = rounds.Workers(codec, 3).step(codec, values, number)
    for i, (mean, count) in enumerate(zip(means, (30, 1), strict=True)):
      chosen = mean != 0
      assert np.count_nonzero(chosen) == count
      expected = np.mean([v[i] for v in values], axis=0)[chosen]
      factor = mean.size / count if unbiased else 1
      np.testing.assert_allclose(mean[chosen], factor * expected, rtol=1e-5)
    steps.append(means[0] != 0)
  assert not np.array_equal(*steps)


@pytest.mark.statistical
@pytest.mark.parametrize('unbiased', [0, 1])
def test_randomk_draws_the_indices_of_a_segment_equally_often(unbiased):
  # 15 stretches of 3 elements or 4.
  size, draws = 50, 400
  text = f'randomk:ratio=0.3,unbiased={unbiased}'
  codec = rounds.codec_of(registry.method(text), [(size,)])
  ones = tf.ones([size])

  @tracing.function
  def step(number):
    return rounds.Workers(codec, 1).means(codec, [[ones]], number)[0]

  means = sum(step(tf.constant(i)).numpy() for i in range(draws)) / draws
  borders = np.arange(16) * size // 15
  lengths = np.repeat(np.diff(borders), np.diff(borders))
  factors = lengths if unbiased else 1
  # A share of 1 / length of the draws, within 6 deviations of 50 elements.
  spread = np.sqrt((1 / lengths) * (1 - 1 / lengths) / draws)
  assert (np.abs(means - factors / lengths) < 6 * spread * factors).all()
