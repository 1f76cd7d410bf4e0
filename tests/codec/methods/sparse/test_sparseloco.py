"""SparseLoCo's code and its quantizer against NumPy, and its length."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad import native
from terngrad.codec.methods import registry
from tests.codec import conformance
from tests.native import test_kernels


def values_of(size, seed=0):
  rng = np.random.default_rng(seed)
  return rng.standard_t(3, size=size).astype(np.float32)


def quantized(values):
  """Four bins of 1.5 standard deviations, by their means; float64."""
  values = values.astype(np.float64)
  spread = values.std(ddof=1) if len(values) > 1 else 0.0
  width = 6 * spread / 4 or 1.0
  codes = np.clip(np.round((values - values.mean()) / width + 2), 0, 3)
  means = [values[codes == c].mean() if c in codes else 0 for c in range(4)]
  return np.array(means)[codes.astype(int)]


def sparse(values, chunk, kept):
  """Q(TopK(values)) with one quantizer for all chunks, float64."""
  chosen = []
  for start in range(0, len(values), chunk):
    part = np.abs(values[start : start + chunk])
    number = -(-kept * len(part) // chunk)
    order = np.argsort(-part, kind='stable')[:number]
    chosen += [*(start + np.sort(order))]
  found = np.zeros(len(values))
  found[chosen] = quantized(values[chosen])
  return found


@pytest.mark.parametrize('size', [1, 2, 63, 64, 65, 1003])
def test_sparseloco_quantizes_the_largest_of_each_chunk(size):
  values = values_of(size)
  codec = registry.parse('sparseloco:chunk=64,kept=3')
  actual = conformance.round_trip(codec, values)
  np.testing.assert_allclose(actual, sparse(values, 64, 3), rtol=2.0**-23)


@pytest.mark.parametrize('size', [1, 2, 100, 1003])
def test_statistical_sends_the_means_of_four_bins(size):
  values = values_of(size)
  actual = conformance.round_trip(registry.parse('statistical'), values)
  np.testing.assert_allclose(actual, quantized(values), rtol=2.0**-23)
  assert len({*actual.tolist()}) <= 4


def test_equal_elements_are_exact():
  values = np.full(100, -0.3, np.float32)
  for text in ('statistical', 'sparseloco:chunk=50,kept=49'):
    actual = conformance.round_trip(registry.parse(text), values)
    assert {*actual.tolist()} <= {values[0], 0.0}


def test_twenty_five_million_parameters_take_0_149_bits_each():
  codec = registry.parse('sparseloco')
  size = 25_000_000
  sent = 64 * (size // 4096) + 33
  words = codec.num_words(size)
  values = 4 + -(-2 * sent // 32)
  assert 32 * (words - values) / size < 0.119
  assert 32 * words / size < 0.149
  # The mean is sent back in the same number of bits.
  both = registry.method('bidirectional:workers=4+sparseloco').messages(
    [(size,)]
  )
  for ((message,),) in zip(both, strict=True):
    assert 32 * message.num_words / size < 0.153


@pytest.mark.parametrize(
  ('index', 'word', 'message'),
  [
    (0, np.float32(np.inf).view(np.int32), 'expected finite levels'),
    (4, -1, r'unsigned\(2\): expected code 0 past the last'),
    (
      5,
      2**18 - 1,
      'expected 3 indices below 64 in ascending order in each chunk',
    ),
    (-1, -1, 'expected 1 indices below 9 in ascending order in each chunk'),
  ],
)
def test_damaged_payload_is_refused(index, word, message):
  codec = registry.parse('sparseloco:chunk=64,kept=3')
  conformance.check_corruption_is_refused(
    codec, values_of(201), index, word, message
  )


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('sparseloco:chunk=1', 'chunk from 2 to 8192, received 1'),
    ('sparseloco:kept=4096', 'kept from 1 to 128 .* or the code statistical'),
    ('sparseloco:chunk=4,kept=4', 'kept from 1 to 3 for chunk=4, received 4'),
  ],
)
def test_options_out_of_range_are_refused(text, message):
  with pytest.raises(ValueError, match=message):
    registry.parse(text)


@pytest.mark.skipif(not native.available(), reason='no kernels here')
@pytest.mark.parametrize('text', ['sparseloco', 'sparseloco:chunk=100,kept=7'])
def test_kernels_select_in_any_chunk(text):
  """Rows of very different size, of equal elements, and of zeros."""
  rng = np.random.default_rng(1)
  values = rng.normal(size=[6, 4096]) * [[1], [1e-6], [1e6], [1], [0], [1]]
  values[3] = rng.integers(-2, 3, 4096)
  values = tf.constant(values.reshape(-1)[:-77], tf.float32)
  codec = registry.parse(text)
  key = test_kernels.keys(0)
  words = codec.encode([values], None, None, key)
  fast = codec.on_kernels()
  assert fast is not codec
  np.testing.assert_array_equal(fast.encode([values], None, None, key), words)
  parts = [words[tf.newaxis]]
  np.testing.assert_array_equal(
    fast.decode_sum(parts, None, [values.shape])[0],
    codec.decode_sum(parts, None, [values.shape])[0],
  )
