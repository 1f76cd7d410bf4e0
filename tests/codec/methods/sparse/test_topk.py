"""The largest elements of each variable."""

import math

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.codec.methods import validation
from terngrad.codec.methods.sparse import topk
from terngrad.codec.stages import tracing
from tests.codec import conformance


def largest(variable, ratio):
  """The variable with zeros in place of all but its largest elements."""
  flat = np.ravel(variable)
  count = min(flat.size, max(1, math.ceil(ratio * flat.size)))
  kept = np.argsort(-np.abs(flat.astype(np.float64)), kind='stable')[:count]
  result = np.zeros_like(flat)
  result[kept] = flat[kept]
  return result.reshape(np.shape(variable))


class TestTopk(conformance.CodecConformance):
  ratio = 0.25

  def make(self):
    return topk.TopK(self.ratio)

  def expected_values(self, variable):
    return largest(variable, self.ratio)

  def representable(self, size):
    values = conformance.rng().normal(size=size).astype(np.float32)
    return largest(values, self.ratio), np.float32(1)

  def test_num_words_is_minimal(self):
    words = [self.make().num_words(size) for size in range(10)]
    assert words == [0] + [2] * 4 + [4] * 4 + [6]


def words_of(codec, values):
  return conformance.encode(codec, np.array(values, np.float32))[0].numpy()


def test_words_are_golden():
  codec = registry.parse('topk:ratio=0.5')
  words = words_of(codec, [1, -3, 2, 3])
  # Of equal magnitudes the first; float32 has 23 bits after its exponent.
  assert words.tolist()[:2] == [1, 3]
  bits = [(1 << 31) + (128 << 23) + (1 << 22), (128 << 23) + (1 << 22)]
  np.testing.assert_array_equal(words[2:].view(np.uint32), bits)


@pytest.mark.parametrize('mode', ['eager', 'graph', 'xla'])
def test_first_of_equal_magnitudes_is_sent_in_every_mode(mode):
  codec = registry.parse('topk:ratio=0.1')
  values = conformance.rng().integers(-3, 4, size=5000).astype(np.float32)
  values[:9] = [1e-40, -1e-44, 0.0, -0.0, 3e-39, 5.0, -5.0, 5.0, 4.0]

  def encode(values):
    return codec.encode([values], None, None, None)

  if mode != 'eager':
    encode = tracing.function(encode, jit_compile=mode == 'xla')
  indices = encode(tf.constant(values)).numpy()[:500]
  expected = np.argsort(-np.abs(values), kind='stable')[:500]
  np.testing.assert_array_equal(indices, np.sort(expected))


@pytest.mark.parametrize(
  'kind', ['heavy', 'ties', 'zeros', 'few', 'periodic', 'hidden']
)
def test_largest_of_many_equal_a_sort(kind):
  size = 2**16 + 7
  rng = conformance.rng()
  values = {
    'heavy': lambda: rng.standard_t(2, size=size),
    'ties': lambda: rng.integers(-2, 3, size=size),
    'zeros': lambda: np.zeros(size),
    'few': lambda: np.arange(size) < 9,
    'periodic': lambda: np.arange(size) % 61,
    # What a sample sees is large, the others are not.
    'hidden': lambda: np.where(np.arange(size) % 61, 1e-3, 5.0),
  }[kind]().astype(np.float32)
  for number in (1, 500, size // 5):
    found = tracing.function(topk.largest)(tf.constant(values), number)
    expected = np.argsort(-np.abs(values), kind='stable')[:number]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize('compiled', [False, True])
def test_indices_out_of_range_are_ignored(compiled):
  codec = registry.parse('topk:ratio=0.5')
  one = np.float32(1).view(np.int32)
  words = np.array([[-1, 10, 2**31 - 1, -(2**31), 3, *[one] * 5]], np.int32)

  def decode(words):
    return codec.decode_sum([words], tf.ones([1]), [(10,)])[0]

  decode = tracing.function(decode, jit_compile=compiled)
  np.testing.assert_array_equal(decode(words), np.eye(10)[3])


@pytest.mark.parametrize(
  ('index', 'word', 'message'),
  [
    (0, -1, 'expected distinct indices below 20'),
    (0, 20, 'expected distinct indices below 20'),
    (2, 1, 'in ascending order'),
    (2, 5, 'in ascending order'),
    (5, np.float32(np.inf).view(np.int32), 'expected finite values'),
    (5, np.float32(np.nan).view(np.int32), 'expected finite values'),
  ],
)
def test_damaged_payload_is_refused(index, word, message):
  codec = registry.parse('topk:ratio=0.25')
  words = words_of(codec, np.linspace(1, 2, 20)[::-1])
  np.testing.assert_array_equal(validation.validate(codec, words, 20), words)
  words[index] = word
  with pytest.raises(ValueError, match=message):
    validation.validate(codec, words, 20)


def test_repeated_index_is_refused():
  codec = registry.parse('topk:ratio=0.25')
  words = words_of(codec, np.ones(8))
  words[:2] = 3
  with pytest.raises(ValueError, match='expected distinct'):
    validation.validate(codec, words, 8)
