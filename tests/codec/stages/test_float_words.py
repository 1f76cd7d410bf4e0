"""Floats on the wire: golden words, rounding, and the contract."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from terngrad.codec import chain
from terngrad.codec.methods import registry
from terngrad.codec.methods import validation
from terngrad.codec.stages import float_words
from tests.codec import bounds
from tests.codec import conformance

# IEEE 754 binary16: sign, 5 bits of exponent with bias 15, 10 of mantissa.
ONE = 15 << 10
MINUS_TWO = (1 << 15) + (16 << 10)
# Likewise binary32: 8 bits of exponent with bias 127, 23 of mantissa.
ONE_32 = 127 << 23
MINUS_HALF_32 = (1 << 31) + (126 << 23)


class TestIdentity(conformance.CodecConformance):
  per_word = 1

  def make(self):
    return registry.identity()

  def representable(self, size):
    patterns = conformance.rng().integers(0, 2**32, size, dtype=np.uint32)
    values = patterns.view(np.float32)
    values = np.where(np.isfinite(values), values, np.float32(-0.0))
    return values, np.float32(0)


class TestFp16(conformance.CodecConformance):
  per_word = 2

  def make(self):
    return registry.fp16()

  def representable(self, size):
    patterns = conformance.rng().integers(0, 2**16, size, dtype=np.uint16)
    values = patterns.view(np.float16)
    values = np.where(np.isfinite(values), values, np.float16(-0.0))
    return values.astype(np.float32), np.float32(0)


def words_of(packing, planes):
  return packing.pack([tf.constant(p, tf.float32) for p in planes]).numpy()


def test_float32_words_are_golden():
  word = words_of(float_words.float32_words(), [[1.0, -0.5, 0.0]])
  # The int32 view of a word above 2**31 is 2**32 less.
  np.testing.assert_array_equal(word, [ONE_32, MINUS_HALF_32 - 2**32, 0])


def test_float16_words_are_golden():
  # Plane 0 is the low half.
  word = words_of(float_words.float16_words(), [[1.0, -2.0], [-2.0, 1.0]])
  expected = [ONE + (MINUS_TWO << 16) - 2**32, MINUS_TWO + (ONE << 16)]
  np.testing.assert_array_equal(word, expected)


def test_float16_payload_stores_elements_in_planes():
  # Five elements, three words: 0 1 2 stand low, 3 4 and a zero high.
  words, _ = conformance.encode(registry.fp16(), [1, 1, -2, -2, 1])
  expected = [
    ONE + (MINUS_TWO << 16) - 2**32,
    ONE + (ONE << 16),
    MINUS_TWO,
  ]
  np.testing.assert_array_equal(words, expected)


@pytest.mark.parametrize(
  ('value', 'expected'),
  [
    (1 + 2**-11, 1.0),  # a tie: to the even mantissa below
    (1 + 3 * 2**-11, 1 + 2**-9),  # a tie: to the even mantissa above
    (1 + 2**-11 + 2**-20, 1 + 2**-10),
    (65504.0, 65504.0),
    (65519.0, 65504.0),
    (65520.0, 65504.0),  # plain rounding would give infinity
    (-1e30, -65504.0),
    (2.0**-24, 2.0**-24),  # the least subnormal
    (2.0**-25, 0.0),  # a tie: to zero
    (-1.1 * 2.0**-25, -(2.0**-24)),
    (-1e-30, -0.0),
  ],
)
def test_float16_rounds_to_nearest_even_and_saturates(value, expected):
  decoded = conformance.round_trip(registry.fp16(), [value])
  np.testing.assert_array_equal(
    conformance.bits_of(decoded), conformance.bits_of([expected])
  )


@bounds.few_examples
@hypothesis.given(
  strategies.lists(
    strategies.floats(-65504, 65504, width=32), min_size=1, max_size=9
  )
)
def test_float16_rounds_like_numpy(values):
  decoded = conformance.round_trip(registry.fp16(), values)
  expected = np.array(values, np.float32).astype(np.float16)
  np.testing.assert_array_equal(decoded, expected.astype(np.float32))


@pytest.mark.parametrize(
  ('codec', 'values'),
  [
    (registry.identity(), [1e8, 1.0, -1e8]),
    (registry.fp16(), [6e4, 2.0**-14, -6e4]),
  ],
  ids=['identity', 'fp16'],
)
def test_floats_are_not_additive_because_order_matters(codec, values):
  words = [conformance.encode(codec, [v])[0] for v in values]
  swapped = [words[0], words[2], words[1]]
  first, second = (
    conformance.decode_sum(codec, tf.stack(w), 0.0, (1,))
    for w in (words, swapped)
  )
  assert not codec.traits.additive
  assert first[0] != second[0]


def test_clipped_floats_are_not_lossless():
  # One outlier among ten: sigma = 0.3, so that 1.0 becomes 0.6 at c = 2.
  gradient = np.eye(1, 10).ravel()
  clip = registry.clipping.clip_by_stddev(2.0)
  codec = chain.chain(clip, float_words.float32_words())
  decoded = conformance.round_trip(codec, gradient)
  np.testing.assert_allclose(decoded, 0.6 * gradient, rtol=2.0**-22)
  assert not codec.traits.lossless


NAN = 0x7FC00000


@pytest.mark.parametrize(
  ('name', 'words', 'message'),
  [
    ('identity', [0, NAN, 0], 'finite numbers, received nan for element 1'),
    ('identity', [0, 0, -(2**23)], 'received -inf for element 2'),
    ('fp16', [0, 0x7E00], 'finite numbers, received nan for element 1'),
    ('fp16', [0x7C00 << 16, 0], 'received inf for element 2'),
    ('fp16', [0, 1 << 16], 'expected zeros past the last of 3 elements'),
  ],
)
def test_words_of_invalid_floats_are_refused(name, words, message):
  codec = registry.parse(name)
  with pytest.raises(ValueError, match=message):
    validation.validate(codec, np.array(words, np.int32), 3)


@pytest.mark.parametrize('name', ['identity', 'fp16'])
def test_payload_of_the_encoder_is_valid(name):
  codec = registry.parse(name)
  values = np.array([-3e38, 0.0, 1e-42, -0.0, 70000.0], np.float32)
  words, _ = conformance.encode(codec, values)
  np.testing.assert_array_equal(validation.validate(codec, words, 5), words)
