"""Packings of ternary codes: golden words and round trips."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from terngrad.codec import chain
from terngrad.codec.methods import registry
from terngrad.codec.methods import validation
from terngrad.codec.stages import contract
from terngrad.codec.stages import packing
from terngrad.codec.stages import ternary
from tests.codec import bounds
from tests.codec import conformance

MAKERS = {
  'base3': packing.base3,
  'two_bit': packing.two_bit,
  'radix(1)': lambda: packing.radix(1),
  'radix(8)': lambda: packing.radix(8),
  'radix(8, 64)': lambda: packing.radix(8, 64),
}
PACKINGS = pytest.mark.parametrize('name', MAKERS)
RADIX = pytest.mark.parametrize('word_bits', [32, 64])


class Base3(conformance.TernaryAnswers):
  """The default codec of the paper: c = 2.5, base 3."""

  per_word = 20

  def make(self):
    return registry.ternary()

  def local_scaler(self, gradient):
    return min(np.abs(gradient).max(), 2.5 * gradient.std())


class TwoBit(Base3):
  per_word = 16

  def make(self):
    return registry.ternary(packing='two_bit')


class Radix(Base3):
  per_word = 7

  def make(self):
    return registry.ternary(packing='radix', workers=8)


class Radix64(Base3):
  per_word = 15

  def make(self):
    return registry.ternary(packing='radix', workers=8, word_bits=64)


class TestBase3(Base3, conformance.TernaryConformance):
  pass


@pytest.mark.slow
class TestTwoBit(TwoBit, conformance.TernaryConformance):
  pass


@pytest.mark.slow
class TestRadix(Radix, conformance.TernaryConformance):
  pass


# The fast tests below hold what differs from words of 32 bits.
@pytest.mark.slow
class TestRadix64(Radix64, conformance.TernaryConformance):
  numbers_per_word = 2


# Codes come back from every packing, so that one packing's draws are all's.


class TestDrawsOfBase3(Base3, conformance.DrawConformance):
  pass


@pytest.mark.slow
class TestDrawsOfTwoBit(TwoBit, conformance.DrawConformance):
  pass


@pytest.mark.slow
class TestDrawsOfRadix(Radix, conformance.DrawConformance):
  pass


@pytest.mark.slow
class TestDrawsOfRadix64(Radix64, conformance.DrawConformance):
  pass


def signed(word, bits=32):
  """The integer that has the bits of a word below 2**bits."""
  return word - 2**bits if word >= 2 ** (bits - 1) else word


def codec_of(name):
  return chain.chain(ternary.ternarize(), MAKERS[name]())


def one_word(name, codes):
  """The word that holds one code a plane."""
  planes = [tf.constant([code]) for code in codes]
  words = MAKERS[name]().pack(planes).numpy()
  # Little-endian, as numbers of 64 bits are sent.
  return int(words.view({4: np.int32, 8: np.int64}[words.nbytes])[0])


@pytest.mark.parametrize(
  ('name', 'codes', 'expected'),
  [
    # Digits are code + 1; place p weighs 3**p.
    ('base3', [-1] * 20, 0),
    ('base3', [0] * 20, (3**20 - 1) // 2),
    ('base3', [1] * 20, 3**20 - 1),  # above 2**31
    ('base3', [1, -1, 0] + [-1] * 17, 2 + 0 * 3 + 1 * 3**2),
    ('base3', [0, -1, 0] + [-1] * 16 + [1], 1 + 3**2 + 2 * 3**19),
    ('base3', [0] + [-1] * 18 + [0], 1 + 3**19),
    # Likewise with 4**p.
    ('two_bit', [-1] * 16, 0),
    ('two_bit', [0] * 16, (4**16 - 1) // 3),
    ('two_bit', [1] * 16, 2 * (4**16 - 1) // 3),  # above 2**31
    ('two_bit', [1, -1, 0] + [-1] * 13, 2 + 0 * 4 + 1 * 4**2),
    ('two_bit', [0, -1, 0] + [-1] * 12 + [1], 1 + 4**2 + 2 * 4**15),
    ('two_bit', [0] + [-1] * 14 + [0], 1 + 4**15),
    # Likewise with 3**p and 17**p.
    ('radix(1)', [0, -1, 0] + [-1] * 16 + [1], 1 + 3**2 + 2 * 3**19),
    ('radix(8)', [-1] * 7, 0),
    ('radix(8)', [0] * 7, (17**7 - 1) // 16),
    ('radix(8)', [1, -1, 0, -1, -1, -1, 1], 2 + 1 * 17**2 + 2 * 17**6),
    ('radix(8, 64)', [-1] * 15, 0),
    ('radix(8, 64)', [0] * 15, (17**15 - 1) // 16),
    ('radix(8, 64)', [1, -1, 0] + [-1] * 11 + [1], 2 + 17**2 + 2 * 17**14),
  ],
)
def test_word_is_golden(name, codes, expected):
  assert one_word(name, codes) == signed(expected, 64 if '64' in name else 32)


@pytest.mark.parametrize(
  ('name', 'expected'),
  [
    # Three words, padded with the digit 1 of code 0. Word 0 holds elements 0
    # and 3, word 1 elements 1 and 4, word 2 elements 2 and so on.
    ('base3', [1 - 1, 1 + 3**11, 1 + 1]),
    ('two_bit', [1 - 1, 1 + 4**11, 1 + 1]),
  ],
)
def test_payload_stores_elements_in_planes_and_pads_with_code_zero(
  name, expected
):
  per_word, base = {'base3': (20, 3), 'two_bit': (16, 4)}[name]
  size = 2 * per_word + 5
  gradient = np.zeros(size)
  gradient[0] = -1  # word 0, place 0
  gradient[2] = 1  # word 2, place 0
  gradient[3 * 11 + 1] = 1  # word 1, place 11
  zeros = (base**per_word - 1) // (base - 1)
  words, _ = conformance.encode(registry.ternary(0, packing=name), gradient)
  # `expected` counts from a word of zeros, whose lowest digit is 1.
  expected = [signed(zeros + word - 1) for word in expected]
  np.testing.assert_array_equal(words, expected)


@PACKINGS
def test_all_codes_round_trip_at_every_position(name):
  made = MAKERS[name]()
  size = made.elements_per_word
  # Word i * 3 + d holds code d - 1 at place i, and random codes elsewhere.
  codes = conformance.rng().integers(-1, 2, size=(size, 3 * size))
  for index in range(size):
    codes[index, 3 * index : 3 * index + 3] = [-1, 0, 1]
  words = made.pack(list(tf.constant(codes, tf.int32)))
  assert words.dtype == tf.int32
  np.testing.assert_array_equal(tf.stack(made.unpack(words)), codes)


@PACKINGS
@bounds.few_examples
@hypothesis.given(
  codes=strategies.lists(strategies.sampled_from([-1, 0, 1]), max_size=90)
)
def test_any_codes_round_trip(name, codes):
  codec = codec_of(name)
  decoded = conformance.round_trip(codec, np.array(codes, 'f'), local_probe=1.0)
  np.testing.assert_array_equal(decoded, codes)


def test_codes_do_not_depend_on_the_packing():
  # An element draws by its index, wherever it is packed.
  gradient = conformance.rng().normal(size=1003)
  decoded = [
    conformance.round_trip(codec_of(name), gradient) for name in MAKERS
  ]
  for other in decoded[1:]:
    np.testing.assert_array_equal(decoded[0], other)


@PACKINGS
def test_packing_takes_ternary_codes_to_words(name):
  made = MAKERS[name]()
  assert (made.name, made.levels) == (name, 1)
  assert made.domain == (contract.CODES, contract.WORDS)


# Sums of words.


def payloads_of(codec, codes):
  """int32 [n, w]: the payloads of int [n, size] codes."""
  rows = [conformance.encode(codec, row, local_probe=1.0)[0] for row in codes]
  return tf.stack(rows)


@RADIX
@pytest.mark.parametrize('added', [1, 5, 8])
def test_sum_of_words_decodes_to_the_sum_of_codes(word_bits, added):
  codec = registry.ternary(packing='radix', workers=8, word_bits=word_bits)
  codes = conformance.rng().integers(-1, 2, size=(added, 100))
  # All alike, so that digits reach the largest and the smallest sum.
  codes[:, :20], codes[:, 20:40] = 1, -1
  lanes = codec.packing.lanes(payloads_of(codec, codes)).numpy()
  assert lanes.dtype == np.dtype(f'int{word_bits}')
  total = lanes.sum(axis=0, dtype=lanes.dtype)
  sums = codec.packing.sums_of_total(tf.constant(total), added)
  (decoded,) = codec.decode_sums(sums, tf.ones([1]), [(100,)])
  np.testing.assert_array_equal(decoded, codes.sum(axis=0))


def test_word_above_the_largest_int32_decodes():
  codec = codec_of('radix(1)')
  (word,) = codec.packing.lanes(payloads_of(codec, [[1] * 20]))[0].numpy()
  assert word < 0
  sums = codec.packing.sums_of_total(tf.constant([word]), 1)
  (decoded,) = codec.decode_sums(sums, tf.ones([1]), [(20,)])
  np.testing.assert_array_equal(decoded, np.ones(20))


@RADIX
def test_more_workers_than_the_digits_hold_are_an_error(word_bits):
  codec = registry.ternary(packing='radix', workers=2, word_bits=word_bits)
  words = payloads_of(codec, np.zeros([3, 5]))
  with pytest.raises(
    ValueError, match='at most 2 workers, received 3.*workers=3'
  ):
    codec.decode_sum([words], tf.ones([1]), [(5,)])


def test_lanes_of_words_that_cannot_be_added_are_refused():
  base3 = registry.ternary().packing
  assert base3.max_workers is None
  with pytest.raises(ValueError, match='received base3.*packing=radix'):
    base3.lanes(tf.zeros([3], tf.int32))


def test_sums_of_words_that_cannot_be_added_are_refused():
  with pytest.raises(ValueError, match='base3: expected .* at most 0 workers'):
    packing.base3().sums_of_total(tf.zeros([2], tf.int32), 1)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ((0,), r'from 1 to 32767, received 0\. Set.*workers=8'),
    ((32768,), 'received 32768'),
    ((8, 16), 'word_bits 32 or 64, received 16'),
  ],
)
def test_radix_out_of_range_is_an_error(arguments, message):
  with pytest.raises(ValueError, match=message):
    packing.radix(*arguments)


# Bits.


@pytest.mark.parametrize(
  ('text', 'per_element'),
  [
    ('two_bit', 2.0),
    ('base3', 1.6),
    ('radix,workers=8', 32 / 7),
    ('radix,workers=8,word_bits=64', 64 / 15),
  ],
)
def test_bits_of_a_million_elements(text, per_element):
  codec = registry.parse(f'ternary:packing={text}')
  bits = codec.bits(10**6, 8)
  # At most one word is not full; and the scaler.
  assert 0 <= bits - per_element * 10**6 <= 64 + 32
  sent = codec.sent_words(tf.zeros([3, codec.num_words(10**6)], tf.int32))
  np.testing.assert_array_equal(sent, [(bits - 32) / 32] * 3)


# Payloads that no encoder made.


@PACKINGS
def test_payload_of_the_encoder_is_valid(name):
  codec = codec_of(name)
  for size in (0, 1, 7, 41):
    codes = conformance.rng().integers(-1, 2, size=(1, size))
    words = payloads_of(codec, codes)[0].numpy()
    valid = validation.validate(codec, words, size)
    np.testing.assert_array_equal(valid, words)


@pytest.mark.parametrize(
  ('name', 'words', 'size', 'message'),
  [
    (
      'base3',
      [0],
      21,
      'base3: expected 2 words for 21 .* received 1.* incomplete',
    ),
    ('base3', [0, 0], 20, 'expected 1 words for 20 elements, received 2'),
    ('base3', [3**20 - 2**32], 20, 'word 0 to be 0x.*received 0xcfd41b91'),
    ('base3', [0], 19, 'expected code 0 past the last of 19 elements'),
    ('two_bit', [3 * 4**5], 16, 'from -1 to 1, received code 2 .* 5'),
    ('radix(8)', [3 * 17], 7, 'from -1 to 1, received code 2 .* 1'),
    ('radix(8)', [-1], 7, 'received code '),
    ('radix(8)', [17**7], 7, 'from -1 to 1|word 0 to be'),
    ('radix(8, 64)', [0], 15, 'expected 2 words for 15 elements, received 1'),
    ('radix(8, 64)', [0, -1], 15, 'received code '),
    ('base3', [[0]], 20, r'one dimension, received int32 \(1, 1\)'),
    ('base3', [0.5], 20, r'expected int32 words .* received float64 \(1,\)'),
  ],
)
def test_malformed_payload_is_refused(name, words, size, message):
  words = np.array(words)
  if words.dtype == np.int64:
    words = words.astype(np.int32)
  with pytest.raises(ValueError, match=message):
    validation.validate(codec_of(name), words, size)


@PACKINGS
@bounds.few_examples
@hypothesis.given(
  words=strategies.lists(strategies.integers(-(2**31), 2**31 - 1), max_size=4),
  size=strategies.integers(0, 50),
)
def test_words_that_are_not_refused_round_trip(name, words, size):
  codec = codec_of(name)
  words = np.array(words, np.int32)
  try:
    words = validation.validate(codec, words, size)
  except ValueError as error:
    assert 'expected' in str(error)
    return
  codes = conformance.decode(codec, words, 1.0, (size,))
  again, _ = conformance.encode(codec, codes, local_probe=1.0)
  np.testing.assert_array_equal(again, words)
