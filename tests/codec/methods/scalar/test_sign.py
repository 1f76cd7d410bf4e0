"""Signs and scales, by the mean of the workers and by their majority."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.codec.methods import validation
from terngrad.codec.stages import packing
from terngrad.reduce import bucketing
from tests.codec import conformance
from tests.codec import one_round

SHAPES = ((5, 7), (), (40,))


def scaled(variable):
  """Signs times the mean magnitude; zeros count as positive."""
  if not np.size(variable):
    return variable
  scale = np.float32(np.mean(np.abs(variable.astype(np.float64))))
  return np.where(variable < 0, -scale, scale).astype(np.float32)


class TestSign(conformance.CodecConformance):
  per_word = 32

  def make(self):
    return registry.parse('sign')

  def expected_values(self, variable):
    return scaled(variable)

  def representable(self, size):
    signs = conformance.rng().choice([-1, 1], size=size)
    return (signs * np.float32(0.1)).astype(np.float32), np.float32(1)

  def test_num_words_is_minimal(self):
    words = [self.make().num_words(size) for size in range(97)]
    assert words == [0] + [2] * 32 + [3] * 32 + [4] * 32


def test_one_bit_words_are_golden():
  planes = [tf.constant([1 if index % 3 else -1]) for index in range(32)]
  words = packing.one_bit().pack(planes)
  expected = sum(2**index for index in range(0, 32, 3))
  np.testing.assert_array_equal(words.numpy().view(np.uint32), [expected])
  unpacked = packing.one_bit().unpack(words)
  np.testing.assert_array_equal(unpacked, planes)


def test_positions_past_the_last_element_must_be_positive():
  codec = registry.parse('sign')
  words, _ = conformance.encode(codec, np.full(5, -1.0))
  words = words.numpy()
  np.testing.assert_array_equal(words[1:], [31])
  np.testing.assert_array_equal(validation.validate(codec, words, 5), words)
  words[1] = 63
  with pytest.raises(ValueError, match='expected code 1 past the last of 5'):
    validation.validate(codec, words, 5)


def test_words_of_signs_are_not_checked_as_scales():
  codec = registry.parse('sign')
  words, _ = conformance.encode(codec, np.full(32, -1.0))
  words = words.numpy()
  # As a float32 the word of signs is no number.
  assert words[1] == -1
  np.testing.assert_array_equal(validation.validate(codec, words, 32), words)


@pytest.mark.parametrize('scale', [-1.0, np.inf, np.nan])
def test_invalid_scale_is_refused(scale):
  codec = registry.parse('sign')
  words = np.array([np.float32(scale).view(np.int32), 0], np.int32)
  with pytest.raises(ValueError, match='expected a finite scale >= 0'):
    validation.validate(codec, words, 5)


def majority_of(values):
  """(the workers' words, the decoded means) of lists of arrays."""
  specs = [policy.VariableSpec(str(i), s) for i, s in enumerate(SHAPES)]
  voting = registry.method('sign:decide=majority')
  code = bucketing.gradient_codec(specs, [voting] * len(SHAPES))
  words = []
  for own in values:
    own = [tf.constant(v) for v in own]
    probe = one_round.probe(code, own)
    words.append(one_round.encode(code, own, probe, probe, code.keys(0, 0, 0)))
  return code, words, one_round.decode_mean(code, [tf.stack(words)], probe)


@pytest.mark.parametrize('num_workers', [1, 2, 3, 4])
def test_majority_decides_and_ties_are_zero(num_workers):
  rng = np.random.default_rng(2)
  values = [
    [rng.normal(size=s).astype(np.float32) for s in SHAPES]
    for _ in range(num_workers)
  ]
  code, words, means = majority_of(values)
  size = 35 + 1 + 40
  assert words[0].shape == (-(-size // 32) + 3,)
  assert code.bits(num_workers) == 32 * (3 + 3 + 3)
  for i, mean in enumerate(means):
    own = [worker[i] for worker in values]
    votes = sum(np.where(v < 0, -1, 1) for v in own)
    scale = np.mean([np.mean(np.abs(v.astype(np.float64))) for v in own])
    np.testing.assert_array_equal(np.sign(mean), np.sign(votes))
    # A rounding for each scale, each sum, the reciprocal and the product.
    np.testing.assert_allclose(
      mean, np.sign(votes) * scale, rtol=(num_workers + 3) * 2.0**-24
    )
  if num_workers == 2:
    assert not all(np.all(mean) for mean in means)


def test_estimate_of_majority_decodes_local_signs_and_scales():
  rng = np.random.default_rng(2)
  own = [rng.normal(size=s).astype(np.float32) for s in SHAPES]
  code, (words,), _ = majority_of([own])
  (bucket,) = code.buckets
  sizes = [message.num_words for message in bucket.messages(0)]
  context = methods.Context(bucket.shapes, 1, 0, 0, None, None)
  said = bucket.method.estimate(tf.split(words, sizes), context)
  for one, variable in zip(said, own, strict=True):
    np.testing.assert_array_equal(one, scaled(variable).ravel())
