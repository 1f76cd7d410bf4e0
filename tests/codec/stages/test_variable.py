"""Packings of variable length: golden words, lengths and malformed words."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from terngrad.codec.methods import registry
from terngrad.codec.methods import validation
from terngrad.codec.stages import bitmap
from terngrad.codec.stages import huffman
from terngrad.codec.stages import huffman_tables
from terngrad.codec.stages import ternary
from terngrad.codec.stages import tracing
from tests.codec import bounds
from tests.codec import conformance

NAMES = pytest.mark.parametrize('name', ['bitmap_sign', 'huffman243'])
MILLION = 10**6


class BitmapSign(conformance.TernaryAnswers):
  """1 + density bits an element."""

  per_word = 32
  packing = 'bitmap_sign'

  def make(self):
    return registry.ternary(packing=self.packing)

  def local_scaler(self, gradient):
    return min(np.abs(gradient).max(), 2.5 * gradient.std())

  def largest(self, size):
    """The most words that `size` elements need, by counting."""
    return 1 + 2 * -(-size // 32)


class Huffman243(BitmapSign):
  """About 1.23 bits an element, never more than base 3 and a first word."""

  per_word = 20
  packing = 'huffman243'

  def largest(self, size):
    return 1 + -(-size // 20)


class VariableConformance(conformance.TernaryConformance):
  """The claims of packings, in place of those of fixed length."""

  def test_num_words_is_minimal(self):
    for size in (0, 1, 19, 20, 21, 31, 32, 33, 39, 40, 41, 99):
      words, _ = conformance.encode(self.make(), np.ones(size))
      assert words.shape == (self.largest(size),)

  @pytest.mark.parametrize('size', [0, 1, 41, 1000])
  def test_bits_equal_the_sent_size(self, size):
    # Almost, of one draw; see the tests of lengths below.
    codec = self.make()
    words, _ = conformance.encode(codec, conformance.rng().normal(size=size))
    used = int(codec.sent_words(words))
    assert 0 < used <= self.largest(size)
    assert not words[used:].numpy().any()
    assert abs(codec.bits(size, 2) / 32 - (used + 1)) < 3

  def test_bucket_sends_one_payload_and_one_probe_per_variable(self):
    codec, variables = self.make(), self.bucket()
    local_probe = codec.probe(variables)
    words = codec.encode(
      variables, local_probe, local_probe, conformance.bucket_key()
    )
    size = 20 + 1 + 0 + 33 + 42
    assert (local_probe.dtype, local_probe.shape) == (tf.float32, (5,))
    assert (words.dtype, words.shape) == (tf.int32, (self.largest(size),))
    assert codec.bits(size, 2, 5) == codec.bits(size, 2, 0) + 5 * 32


@pytest.mark.slow
class TestBitmapSign(BitmapSign, VariableConformance):
  pass


@pytest.mark.slow
class TestHuffman243(Huffman243, VariableConformance):
  pass


@pytest.mark.slow
class TestZeroRuns(Huffman243, VariableConformance):
  """Bytes of five trits, four a word."""

  packing = 'zero_runs'

  def largest(self, size):
    symbols = -(-size // 5)
    return 1 + -(-symbols // 4)


@pytest.mark.slow
class TestDrawsOfBitmapSign(BitmapSign, conformance.DrawConformance):
  pass


@pytest.mark.slow
class TestDrawsOfHuffman243(Huffman243, conformance.DrawConformance):
  pass


def codec_of(name):
  return registry.ternary(0, packing=name)


def codes_of(size, density):
  rng = conformance.rng()
  return (rng.random(size) < density) * rng.choice([-1.0, 1.0], size=size)


def payload_of(name, codes):
  """NumPy int32 words of codes, and how many are used."""
  codec = codec_of(name)
  words, _ = conformance.encode(codec, codes, local_probe=1.0)
  return words.numpy(), int(codec.sent_words(words))


def signed(words):
  """int32 words that have the bits of integers below 2**32."""
  return np.array(words, np.uint32).view(np.int32)


# Golden words.


def test_bitmap_sign_is_golden():
  # w = 2: element 2 p is bit p of word 1, element 2 p + 1 bit p of word 2.
  codes = np.zeros(40)
  codes[[0, 6, 38]] = 1, -1, -1  # word 1: bits 0, 3 and 19
  codes[[1, 39]] = -1, 1  # word 2: bits 0 and 19
  expected = [
    4,  # used
    1 + 2**3 + 2**19,
    1 + 2**19,
    0 + 2 * 1 + 2**2 * 1 + 2**3 * 1 + 2**4 * 0,  # + - - of word 1, - + of 2
    0,
  ]
  words, used = payload_of('bitmap_sign', codes)
  np.testing.assert_array_equal(words, signed(expected))
  assert used == 4


def test_bitmap_sign_of_every_sign_is_golden():
  words, _ = payload_of('bitmap_sign', np.full(64, -1.0))
  np.testing.assert_array_equal(words, signed([5] + [2**32 - 1] * 4))


def test_huffman243_without_a_code_is_golden():
  # s = 5 symbols, r = 2 words: element p * 5 + j is digit 3**p of symbol j,
  # and symbol q * 2 + i stands at 243**q of word 1 + i.
  symbols, zeros = (5, 100, 242, 17, 200), 121
  digits = [[s // 3**index % 3 for s in symbols] for index in range(5)]
  expected = [
    3,
    5 + 242 * 243 + 200 * 243**2 + zeros * 243**3,
    100 + 17 * 243 + zeros * 243**2 + zeros * 243**3,
  ]
  codes = np.reshape(digits, [-1]) - 1.0
  words, used = payload_of('huffman243', codes)
  np.testing.assert_array_equal(words, signed(expected))
  assert used == 3


def test_huffman243_of_zeros_is_golden():
  # 520 symbols in two blocks. The symbol of zeros has the word 0, of one bit:
  # 512 bits are 16 words, the other 8 bits one. Table 1 of 64.
  words, used = payload_of('huffman243', np.zeros(2600))
  assert used == 1 + 1 + 16 + 1
  expected = [used + 2**24 * 1, 16 + 2**8 * 1] + [0] * 17
  np.testing.assert_array_equal(words[:used], signed(expected))


def test_huffman243_writes_from_the_highest_bit_down():
  # Symbol 7 alone is not zero: its code word follows seven bits of 0.
  codes = np.zeros(500)
  codes[7] = 1  # digit 3**0: symbol 121 + 1
  words, _ = payload_of('huffman243', codes)
  assert words[0] >> 24 == 1
  length = int(huffman_tables.tables().lengths[1, 122])
  value = int(huffman_tables.tables().values[1, 122])
  assert words[2] == value << (32 - 7 - length)


# Tables.


def test_code_words_are_short_complete_and_free_of_prefixes():
  tables = huffman_tables.tables()
  for lengths, values in zip(
    tables.lengths[1:], tables.values[1:], strict=True
  ):
    assert 1 <= lengths.min() <= lengths.max() <= 12
    starts = np.sort(values << (12 - lengths))
    order = np.argsort(values << (12 - lengths))
    # Each begins where the one before ends, and the last ends at the end.
    ends = starts + 2 ** (12 - lengths[order])
    np.testing.assert_array_equal(starts, [0, *ends[:-1]])
    assert ends[-1] == 2**12


def entropy(density):
  """Bits an element of codes of this density, of either sign."""
  zero = 1 - density
  return -zero * np.log2(zero) - density * np.log2(density / 2)


@pytest.mark.parametrize('step', [1, 10, 20, 32, 43, 63])
def test_mean_length_is_near_the_entropy(step):
  density = step / 64
  mean = huffman_tables.mean_length(density, step)
  assert 5 * entropy(density) <= mean < 5 * entropy(density) + 1
  # And no other table is better.
  for other in range(1, 64):
    assert mean <= huffman_tables.mean_length(density, other) + 1e-9


def test_rarer_symbols_have_no_shorter_code_words():
  nonzero = huffman_tables.nonzero_trits()
  for lengths in huffman_tables.tables().lengths[1:42]:
    # Up to density 2 / 3 every nonzero trit makes a symbol rarer.
    longest = [lengths[nonzero == k].max() for k in range(6)]
    shortest = [lengths[nonzero == k].min() for k in range(6)]
    assert all(a <= b for a, b in zip(longest, shortest[1:], strict=False))


# Lengths.


@pytest.mark.parametrize(
  ('name', 'most'), [('bitmap_sign', 1.33), ('huffman243', 1.24)]
)
def test_gaussian_gradient_clipped_at_two_and_a_half_sigma(name, most):
  gradient = conformance.rng().normal(size=MILLION).astype(np.float32)
  codec = registry.ternary(packing=name)
  words, _ = conformance.encode(codec, gradient)
  bits = 32 * int(codec.sent_words(words)) + 32
  assert bits / MILLION <= most
  # The deviation of the density is 0.0005, that of the bits 1.2 times that.
  assert abs(bits - codec.bits(MILLION, 1)) / MILLION < 6 * 0.0006
  np.testing.assert_array_equal(
    conformance.decode(codec, words, 1.0, (MILLION,)) != 0,
    conformance.round_trip(registry.ternary(), gradient) != 0,
  )


def test_bitmap_sign_expects_one_sign_per_nonzero_code():
  # A word with the length, 2 of bits, and signs whose last word is half full.
  foretold = bitmap.bitmap_sign().expected(64)
  assert foretold == pytest.approx(1 + 2 + 64 * 0.3175 / 32 + 31 / 64)
  assert bitmap.bitmap_sign(0.5).expected(0) == 1


@pytest.mark.statistical
@pytest.mark.parametrize('density', [0.02, 0.15, 0.3175, 0.5, 0.9])
@pytest.mark.parametrize('maker', [bitmap.bitmap_sign, huffman.huffman243])
def test_mean_length_equals_the_expected_length(maker, density):
  packing = maker(density)
  size, rng = 40_000, conformance.rng()
  width = packing.width(size)
  lengths = []
  for _ in range(10):
    codes = (rng.random(size) < density) * rng.choice([-1, 1], size=size)
    missing = packing.elements_per_word * width - size
    planes = np.pad(codes, [0, missing]).reshape([-1, width])
    words = packing.pack(list(tf.constant(planes, tf.int32)))
    lengths.append(int(packing.sent_words(words)))
  # A nonzero code moves the length by at most a symbol's longest code word.
  variance = 10 * size * density * (1 - density) * (12 / 32) ** 2
  limit = bounds.bernstein(variance, 12 / 32, 10) / 10
  # Where the code of its neighbour's table, or none, is a little shorter.
  limit += 0.002 * size / 32
  assert abs(np.mean(lengths) - packing.expected_words(size)) <= limit


@pytest.mark.parametrize('density', [0.0, 0.3, 0.6, 2 / 3, 0.8, 1.0])
@pytest.mark.parametrize('size', [0, 1, 5, 20, 21, 333, 2561, 30_000])
def test_huffman243_is_never_larger_than_base3_and_its_first_word(
  size, density
):
  words, used = payload_of('huffman243', codes_of(size, density))
  assert used <= words.size == 1 + registry.ternary().num_words(size)


def test_huffman243_follows_the_density_of_the_gradient():
  # Not that of Gaussian gradients, which real ones are not.
  for density in (0.05, 0.15, 0.25):
    _, used = payload_of('huffman243', codes_of(MILLION, density))
    assert 32 * used / MILLION < entropy(density) + 0.065


@pytest.mark.parametrize(
  ('clip_factor', 'density'), [(2.5, 0.3175), (1.0, 0.6315), (0, 0.163)]
)
def test_density_of_gaussian_codes(clip_factor, density):
  drawn = np.abs(conformance.rng().normal(size=MILLION))
  limit = clip_factor or drawn.max()
  measured = np.mean(np.minimum(drawn, limit)) / limit
  formula = ternary.gaussian_density(clip_factor)
  np.testing.assert_allclose(formula, density, rtol=0.08)
  np.testing.assert_allclose(formula, measured, rtol=0.08)


@NAMES
def test_size_whose_positions_overflow_is_an_error(name):
  codec = codec_of(name)
  assert codec.num_words(2**28) < 2**25
  with pytest.raises(ValueError, match='at most 268435456 .* packing=base3'):
    codec.num_words(2**28 + 1)


# Words that no encoder made.


@NAMES
def test_payload_without_trailing_zeros_is_valid_and_padded(name):
  codec = codec_of(name)
  for size in (0, 1, 31, 5000):
    words, used = payload_of(name, codes_of(size, 0.2))
    for sent in (words, words[:used]):
      valid = validation.validate(codec, sent, size)
      np.testing.assert_array_equal(valid, words)


@pytest.mark.parametrize(
  ('name', 'words', 'size', 'message'),
  [
    ('bitmap_sign', [], 3, 'expected 1 to 3 words for 3 elements.* received 0'),
    ('bitmap_sign', [2], 3, 'received 1 and a first word of 2.* incompl'),
    ('bitmap_sign', [0, 0], 3, 'a first word of 0'),
    ('bitmap_sign', [-1, 0], 3, 'a first word of -1'),
    ('bitmap_sign', [2, 0, 0, 0], 3, 'expected 1 to 3 words.* received 4'),
    ('bitmap_sign', [2, 0, 1], 3, 'expected zeros after the 2 used words'),
    ('bitmap_sign', [3, 0, 0], 3, '2 words for 0 nonzero .* word of 3'),
    ('bitmap_sign', [2, 1], 3, '3 words for 1 nonzero .* word of 2'),
    ('bitmap_sign', [3, 8, 0], 3, 'code 0 past the last of 3 elements'),
    ('bitmap_sign', [3, 5, 4], 3, 'word 2 to be 0x00000000, .* 0x00000004'),
    ('huffman243', [2 + 64 * 2**24, 0], 3, 'from 0 to 63 .*, received 64'),
    ('huffman243', [1], 3, '2 words without a Huffman .* received 1 in'),
    ('huffman243', [2 + 9 * 2**24, 1], 3, '3 words for the lengths of its 1 b'),
    ('huffman243', [2, 3**20 - 2**32], 20, 'word 1 to be .* 0xcfd41b91'),
    ('huffman243', [2, 0], 19, 'code 0 past the last of 19'),
  ],
)
def test_malformed_payload_is_refused(name, words, size, message):
  words = np.array(words, np.int64).astype(np.int32)
  with pytest.raises(ValueError, match=message):
    validation.validate(codec_of(name), words, size)


def test_a_damaged_number_of_elements_is_refused():
  codec = registry.parse('threshold:above=1,capacity=0.04')
  values = tf.constant([0.0, 3.0, -2.0, 4.0] + [0.5] * 96)
  words = np.array(codec.encode([values], None, None, None))
  assert words[0] == 3
  # The number of used words, 1 + 2 * words[0], is the same for an int32.
  words[0] ^= np.int32(-(2**31))
  with pytest.raises(ValueError, match='at most 4 elements, received -2147483'):
    validation.validate(codec, words, 100)


@pytest.mark.parametrize('text', ['fp8', 'e3m0'])
def test_damaged_scales_of_small_floats_are_refused_and_decode_exactly(text):
  codec = registry.parse(text)
  values = tf.constant([1.0, -0.25, 0.5, 0.125])
  words = np.array(codec.encode([values], None, None, None))
  validation.validate(codec, words, 4)
  scale = words[0]
  words[0] |= 0x12345
  with pytest.raises(ValueError, match='expected powers of two as scales'):
    validation.validate(codec, words, 4)
  (damaged,) = codec.decode_sum([tf.constant(words[None])], None, [(4,)])
  words[0] = scale
  (whole,) = codec.decode_sum([tf.constant(words[None])], None, [(4,)])
  np.testing.assert_array_equal(damaged, whole)


@pytest.mark.parametrize(
  ('text', 'word', 'bits', 'message'),
  [
    # Five elements: exponents in two words, with three to spare.
    ('natural', 1, 1 << 16, 'natural: expected exponents 0 past the last of 5'),
    ('qsgd', 0, 1, 'expected steps of 16 significant bits'),
    ('qsgd', 0, 0x80, 'expected steps of 16 significant bits'),
    ('minmax', 1, 1, 'expected minima .* steps of 16 significant bits'),
    ('eden:bits=2', 2, 1, 'eden_words: expected scales of 16 significant'),
  ],
)
def test_bits_that_an_encoder_leaves_0_are_refused(text, word, bits, message):
  codec = registry.parse(text)
  values = tf.constant([1.0, -0.25, 0.5, 0.125, 0.3])
  probe = tf.ones([1])
  key = tf.constant([1, 2, 3, 4], tf.uint32)
  words = np.array(codec.encode([values], probe, probe, key))
  validation.validate(codec, words, 5)
  words[word] |= np.int32(bits)
  with pytest.raises(ValueError, match=message):
    validation.validate(codec, words, 5)


@pytest.mark.parametrize(
  ('text', 'scales', 'message'),
  [
    ('qsgd', [2.0**-101], 'or at least 2..-100, received the bits 0x0d000000'),
    ('qsgd', [2.0**127], 'expected steps of 16'),
    ('qsgd', [-0.0], 'received the bits 0x80000000'),
    ('minmax', [-0.0, 1.0], 'expected minima from -2..126 without -0'),
    ('minmax', [-(2.0**127), 1.0], 'expected minima from -2..126'),
  ],
)
def test_scales_that_no_encoder_makes_are_refused(text, scales, message):
  codec = registry.parse(text)
  words = np.zeros(codec.num_words(4), np.int32)
  words[: len(scales)] = np.float32(scales).view(np.int32)
  # Codes of 0, as the encoder packs them.
  words[len(scales) :] = codec.integers.pack_flat(tf.zeros([4], tf.int32))
  with pytest.raises(ValueError, match=message):
    validation.validate(codec, words, 4)


def test_swapped_block_lengths_are_refused():
  codes = codes_of(5120, 0.1)
  codes[:2560] *= 0  # symbols of the second block differ from the first's
  words, used = payload_of('huffman243', np.roll(codes, 512))
  first, second = words[1] & 255, words[1] >> 8
  assert first != second
  words[1] = second + (first << 8)
  with pytest.raises(ValueError, match='to which its codes pack, received'):
    validation.validate(codec_of('huffman243'), words[:used], 5120)


@NAMES
@bounds.few_examples
@hypothesis.given(
  codes=strategies.lists(strategies.sampled_from([-1, 0, 0, 0, 1]), max_size=90)
)
def test_any_codes_round_trip(name, codes):
  codes = np.array(codes, np.float32)
  decoded = conformance.round_trip(codec_of(name), codes, local_probe=1.0)
  np.testing.assert_array_equal(decoded, codes)


@NAMES
@bounds.few_examples
@hypothesis.given(data=strategies.data(), size=strategies.integers(0, 200))
def test_any_words_decode_to_codes(name, data, size):
  codec = codec_of(name)
  word = strategies.integers(-(2**31), 2**31 - 1)
  # First words that lead to every way of decoding.
  first = strategies.builds(
    lambda step, used: step * 2**24 + used,
    strategies.integers(0, 70),
    strategies.integers(0, 20),
  )
  count = codec.num_words(size)
  words = [
    data.draw(first),
    *data.draw(strategies.lists(word, min_size=count - 1, max_size=count - 1)),
  ]
  words = np.array(words, np.int32)
  decoded = conformance.decode(codec, words, 1.0, (size,))
  assert np.isin(decoded, [-1, 0, 1]).all()
  try:
    valid = validation.validate(codec, words, size)
  except ValueError as error:
    assert 'expected' in str(error)
    return
  again, _ = conformance.encode(codec, decoded, local_probe=1.0)
  np.testing.assert_array_equal(again, valid)


@NAMES
@pytest.mark.parametrize('more', [-1, 1, 4096])
def test_payload_of_another_length_is_not_decoded(name, more):
  codec = codec_of(name)
  words = np.ones([codec.num_words(1000) + more], np.int32)
  with pytest.raises(ValueError, match='incomplete or from another bucket'):
    conformance.decode(codec, words, 1.0, (1000,))


@NAMES
def test_compiled_decoder_survives_any_words(name):
  codec, size = codec_of(name), 6000
  rng = conformance.rng()
  decode = tracing.function(
    lambda words: codec.decode_sum([words], tf.ones([1]), [(size,)])[0],
    jit_compile=True,
  )
  words = rng.integers(-(2**31), 2**31, size=(20, codec.num_words(size)))
  words[:, 0] = rng.integers(0, 64, size=20) * 2**24 + words.shape[1]
  for payload in words.astype(np.int32):
    assert np.isin(decode(payload[np.newaxis]), [-1, 0, 1]).all()
