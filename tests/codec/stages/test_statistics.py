"""Standard deviation and largest magnitude of a gradient."""

import hashlib
import os

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies
from hypothesis.extra import numpy as arrays

from terngrad.codec.stages import statistics
from terngrad.codec.stages import tracing
from tests import forked
from tests.codec import bounds
from tests.codec import conformance

# A tree of 16 planes begins at 2**16 elements; others are powers of two about
# where a vectorised loop may end.
SIZES = (
  *(1, 2, 3, 15, 16, 17, 31, 32, 33, 1023, 1024, 1025, 32_767, 32_769),
  *(2**16 - 1, 2**16, 2**16 + 1, 2**16 + 15, 2**16 + 16, 100_007, 10**6),
)


def of(values):
  stats = statistics.statistics(tf.constant(values, tf.float32))
  return stats.stddev.numpy(), stats.max_abs.numpy()


def two_pass(values):
  """The population's standard deviation, in float64 about a known mean."""
  wide = np.asarray(values, np.float64).ravel()
  return np.sqrt(np.mean((wide - wide.mean()) ** 2))


@pytest.mark.parametrize('size', SIZES)
def test_equals_float64_of_two_passes(size):
  rng = np.random.default_rng(size)
  for offset, scale in ((0, 1), (0.3, 1e-3), (-5, 2), (1e4, 1e9), (0, 1e-25)):
    values = (rng.normal(size=size) * scale + offset).astype(np.float32)
    stddev, max_abs = of(values)
    np.testing.assert_allclose(stddev, two_pass(values), rtol=1e-6)
    assert max_abs == np.max(np.abs(values))


@pytest.mark.parametrize('ratio', [1e1, 1e2, 1e3, 1e4])
@pytest.mark.parametrize('size', [40, 5000, 10**6])
def test_deviation_far_below_the_mean_is_still_exact(ratio, size):
  values = conformance.rng().normal(size=size) + ratio
  values = values.astype(np.float32)
  # float64 leaves 2**-53 of the mean square, which is ratio**2 variances, to
  # each addition of a tree of depth 20 at most.
  rtol = max(1e-6, 20 * ratio**2 * 2.0**-53)
  np.testing.assert_allclose(of(values)[0], two_pass(values), rtol=rtol)


def test_deviation_below_two_to_minus_16_of_the_mean_counts_as_none():
  # Two values in turn: mean 1, deviation exactly d.
  for d, counts in ((2.0**-15, True), (2.0**-17, False)):
    values = np.tile([1 - d, 1 + d], 3000)
    assert of(values)[0] == (d if counts else 0)


@pytest.mark.parametrize(
  'value', [0.0, 0.1, -1 / 3, np.pi, 1e-20, 1e-37, 3.3e38, 1 + 2.0**-23]
)
@pytest.mark.parametrize('size', [1, 2, 3, 7, 33, 2**16, 10**5 + 7, 10**6])
def test_equal_elements_have_exactly_no_deviation(size, value):
  value = np.float32(value)
  assert of(np.full(size, value)) == (0.0, np.abs(value))


def test_no_elements_have_no_deviation():
  assert of(np.zeros((0, 3))) == (0.0, 0.0)


@pytest.mark.parametrize('value', conformance.NOT_FINITE, ids=str)
@pytest.mark.parametrize('size', [1, 5, 65_537])
def test_element_that_is_not_finite_makes_both_nan(size, value):
  for index in {0, size // 2, size - 1}:
    values = np.ones(size, np.float32)
    values[index] = value
    assert np.isnan(of(values)).all()


@pytest.mark.parametrize('size', [0, 5, 2**16, 2**16 + 1, 100_007, 10**6])
@pytest.mark.gate_every(2)
def test_one_pass_agrees_with_three(size):
  rng = np.random.default_rng(size)
  values = (rng.normal(size=size) * 1e-3 + 0.3).astype(np.float32)
  compiled = tracing.function(statistics.one_pass_statistics, jit_compile=True)
  for function in (statistics.one_pass_statistics, compiled):
    stddev, max_abs = function(tf.constant(values))
    np.testing.assert_allclose(stddev, of(values)[0], rtol=1e-6)
    assert max_abs == of(values)[1]


@pytest.mark.parametrize('value', conformance.NOT_FINITE, ids=str)
@pytest.mark.parametrize('index', [0, 50_000, 99_999])
def test_one_pass_is_nan_if_an_element_is_not_finite(index, value):
  values = np.ones(100_000, np.float32)
  values[index] = value
  assert np.isnan(statistics.one_pass_statistics(tf.constant(values))).all()


def test_shape_does_not_matter():
  values = conformance.rng().normal(size=5040).astype(np.float32)
  expected = of(values)
  for shape in ((70, 72), (2, 3, 840), (5040, 1)):
    assert of(values.reshape(shape)) == expected


@bounds.few_examples
@hypothesis.given(
  arrays.arrays(
    np.float32,
    strategies.sampled_from([1, 2, 17, 100]),
    elements=strategies.floats(-(2.0**99), 2.0**99, width=32),
  )
)
def test_any_finite_gradient_has_sane_statistics(values):
  stddev, max_abs = of(values)
  assert max_abs == np.abs(values).max()
  # No deviation exceeds the largest magnitude; one rounding besides.
  assert 0 <= stddev <= max_abs * (1 + 2.0**-23)
  expected = two_pass(values)
  # The variance is a difference of sums of squares: 2**-32 of them is lost
  # at most, and that is where a gradient counts as constant.
  lost = 2.0**-16 * np.sqrt(np.mean(values.astype(np.float64) ** 2))
  np.testing.assert_allclose(stddev, expected, rtol=1e-6, atol=lost)


@pytest.mark.parametrize('size', [7, 5003, 65_543])
def test_graph_and_xla_agree_with_eager_to_the_bit(size):
  rng = np.random.default_rng(size)
  graph = tracing.function(statistics.statistics)
  xla = tracing.function(statistics.statistics, jit_compile=True)
  for trial in range(60 if size < 10_000 else 10):
    scale, offset = 10.0 ** rng.uniform(-12, 12), rng.choice([0, 0, 1, 30])
    values = scale * (rng.standard_t(3, size=size) + offset)
    values = tf.constant(values, tf.float32)
    expected = of(values)
    for mode in (graph, xla):
      assert tuple(x.numpy() for x in mode(values)) == expected, trial


# The norm, for codecs that need no statistics.


def norm_of(values):
  return statistics.norm(tf.constant(values, tf.float32)).numpy()


@pytest.mark.parametrize('size', [0, 1, 2, 1000, 2**16 - 1, 2**16 + 17])
def test_norm_equals_numpy(size):
  values = conformance.rng().normal(size=size).astype(np.float32)
  expected = np.linalg.norm(values.astype(np.float64))
  np.testing.assert_allclose(norm_of(values), expected, rtol=2.0**-23)


@pytest.mark.parametrize('value', conformance.NOT_FINITE, ids=str)
@pytest.mark.parametrize('size', [1, 5, 65_537])
def test_norm_is_nan_if_an_element_is_not_finite(size, value):
  for index in {0, size // 2, size - 1}:
    values = np.ones(size, np.float32)
    values[index] = value
    assert np.isnan(norm_of(values))


def test_norm_of_huge_elements_is_the_largest_float():
  assert norm_of(np.full(100, 3e38)) == np.finfo(np.float32).max


# Prints a digest of everything that many threads could disturb.
DIGEST = """
import sys
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
from tests.codec.stages import test_statistics
sys.stdout.write(test_statistics.digest())
"""


def digest():
  """A hash of statistics and of a whole codec's payload, large and small."""
  from terngrad.codec.methods import registry

  found = hashlib.sha256()
  rng = np.random.default_rng(0)
  codec = registry.ternary()
  for size in (1000, 700_001):
    values = tf.constant(rng.random(size, np.float32) - np.float32(0.3))
    for work in (
      statistics.statistics,
      tracing.function(statistics.statistics),
    ):
      for value in work(values):
        found.update(value.numpy().tobytes())
    words, local_probe = conformance.encode(codec, values)
    two = tf.stack([words, words])
    total = conformance.decode_sum(codec, two, local_probe, (size,))
    found.update(words.numpy().tobytes() + total.tobytes())
  return found.hexdigest()


@pytest.mark.slow
def test_number_of_threads_does_not_change_a_bit(tmp_path):
  here = tf.config.threading.get_intra_op_parallelism_threads()
  here = here or len(os.sched_getaffinity(0))
  other = 1 if here > 1 else 2
  result = forked.run(None, DIGEST, other, folder=tmp_path)
  assert result.returncode == 0, result.stderr
  assert result.stdout == digest()


def test_mean_magnitude_of_nothing_is_zero():
  assert statistics.mean_magnitude(tf.zeros([0, 3])).numpy() == 0.0
  found = statistics.mean_magnitude(tf.constant([[1.0, -2.0], [0.0, 5.0]]))
  assert found.numpy() == 2.0
