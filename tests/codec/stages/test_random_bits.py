"""Random bits: known answers, uniformity and independence."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.stages import random_bits
from terngrad.codec.stages import tracing
from tests.codec import bounds

NUM_ELEMENTS = 2**18


def key_of(first, second):
  return tf.constant([first, second], tf.uint32)


def as_int64(low, high):
  """The int64 whose two words are `low` and `high`."""
  word = low + (high << 32)
  return tf.constant(word - 2**64 if word >= 2**63 else word, tf.int64)


def draw(key, size=NUM_ELEMENTS, start=0):
  positions = tf.range(start, start + size)
  return random_bits.element_bits(key, tf.bitcast(positions, tf.uint32)).numpy()


def some_keys():
  """Keys as a run derives them, and keys that are nearly alike."""
  root = random_bits.seed_key(0)
  derived = [random_bits.fold_in(root, tf.constant(i)) for i in range(3)]
  plain = [key_of(0, 0), key_of(1, 0), key_of(0, 1), key_of(2**31, 2**31)]
  return derived + plain


# Threefry-2x32, 20 rounds: the vectors of Random123's kat_vectors.


@pytest.mark.parametrize(
  ('key', 'counter', 'expected'),
  [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0x1CB996FC, 0xBB002BE7)),
    (
      (0x13198A2E, 0x03707344),
      (0x243F6A88, 0x85A308D3),
      (0xC4923A9C, 0x483DF7A0),
    ),
  ],
  ids=['zeros', 'ones', 'pi'],
)
def test_fold_in_is_threefry(key, counter, expected):
  folded = random_bits.fold_in(key_of(*key), as_int64(*counter))
  assert folded.dtype == tf.uint32
  assert tuple(folded.numpy()) == expected


def test_fold_in_broadcasts_over_data_and_keys():
  key = random_bits.seed_key(3)
  data = tf.constant([5, -1, 7])
  together = random_bits.fold_in(key, data)
  alone = [random_bits.fold_in(key, d) for d in data]
  np.testing.assert_array_equal(together, alone)
  keys = tf.stack(alone)
  np.testing.assert_array_equal(
    random_bits.fold_in(keys, tf.constant(2)),
    [random_bits.fold_in(k, tf.constant(2)) for k in alone],
  )


def test_fold_in_depends_on_the_order():
  key = random_bits.seed_key(0)
  one_two, two_one = (
    random_bits.fold_in(
      random_bits.fold_in(key, tf.constant(a)), tf.constant(b)
    )
    for a, b in ((1, 2), (2, 1))
  )
  assert np.any(one_two != two_one)


@pytest.mark.parametrize(
  ('seed', 'words'),
  [
    (0, (0, 0)),
    (1, (1, 0)),
    (2**32 + 7, (7, 1)),
    (-1, (2**32 - 1, 2**32 - 1)),
    (-(2**63), (0, 2**31)),
  ],
)
def test_seed_key_is_the_two_words_of_the_seed(seed, words):
  assert tuple(random_bits.seed_key(seed).numpy()) == words
  tensor = tf.constant(seed, tf.int64)
  assert tuple(random_bits.seed_key(tensor).numpy()) == words


# The stream.


@pytest.mark.parametrize(
  ('key', 'expected'),
  [
    # The published lowbias32, since a key of zeros adds nothing.
    (
      (0, 0),
      (0, 0x688990C0, 0xD1132181, 0x53F1E9DD, 0xCC4B4124, 0x6768824A),
    ),
    (
      (0x6B200159, 0x99BA4EFE),
      (0xD36AF11, 0x712A759E, 0xFCFD4068, 0x703F452E, 0x55D9B2D9, 0x7B7DAA3E),
    ),
  ],
  ids=['zeros', 'seed 0'],
)
def test_stream_is_golden(key, expected):
  # Computed with Python's integers. Workers of two versions must not differ.
  positions = tf.constant([0, 1, 2, 3, 2**31, 2**32 - 1], tf.uint32)
  bits = random_bits.element_bits(key_of(*key), positions)
  assert tuple(bits.numpy()) == expected


def test_bits_depend_only_on_the_position():
  key = random_bits.seed_key(5)
  whole = draw(key, 100)
  np.testing.assert_array_equal(draw(key, 30, start=70), whole[70:])
  positions = tf.constant([[9, 4], [0, 99]], tf.uint32)
  bits = random_bits.element_bits(key, positions)
  assert (bits.dtype, bits.shape) == (tf.uint32, (2, 2))
  np.testing.assert_array_equal(bits, whole[positions.numpy()])


@pytest.mark.parametrize('start', [2**31 - 2, 2**31 + 1, 2**32 - 2])
def test_bits_of_ranges_above_31_bits_are_those_of_their_positions(start):
  key = random_bits.seed_key(5)
  expected = random_bits.range_bits(random_bits.advance_key(key, start), 4)
  for compiled in (False, True):
    work = tracing.function(random_bits.range_bits, jit_compile=compiled)
    bits = work(key, 4, start)
    np.testing.assert_array_equal(bits, expected)


def test_no_two_elements_of_a_key_draw_the_same_bits():
  # The hash is a permutation of 32 bits.
  for key in some_keys():
    assert np.unique(draw(key)).size == NUM_ELEMENTS


def test_graph_and_xla_draw_as_eager():
  for key in some_keys()[:3]:
    for compiled in (False, True):
      work = tracing.function(random_bits.element_bits, jit_compile=compiled)
      bits = work(key, tf.bitcast(tf.range(1000), tf.uint32))
      np.testing.assert_array_equal(bits, draw(key, 1000))


@pytest.mark.statistical
def test_every_bit_is_one_half_the_time():
  keys = some_keys()
  for i, key in enumerate(keys):
    drawn = draw(key)
    ones = [np.count_nonzero(drawn >> b & 1) for b in range(32)]
    limit = bounds.bernstein(NUM_ELEMENTS / 4, 0.5, 32 * len(keys))
    assert np.max(np.abs(np.array(ones) - NUM_ELEMENTS / 2)) <= limit, i


@pytest.mark.statistical
def test_bytes_are_uniform():
  keys = some_keys()
  low, high = bounds.chi_square(255, 4 * len(keys))
  for i, key in enumerate(keys):
    for byte in draw(key).view(np.uint8).reshape(-1, 4).T:
      counts = np.bincount(byte, minlength=256)
      expected = NUM_ELEMENTS / 256
      statistic = np.sum((counts - expected) ** 2) / expected
      # Too even is as suspicious as too uneven.
      assert low <= statistic <= high, i


def correlation(first, second):
  """Mean product of two uniform streams, scaled to [-1/2, 1/2] each."""
  return np.sum((first / 2**32 - 0.5) * (second / 2**32 - 0.5))


def correlation_limit(size, comparisons):
  # The product of two independent uniforms has the variance 1/12 squared.
  return bounds.bernstein(size / 144, 0.25, comparisons)


LAGS = (1, 2, 3, 4, 8, 16, 20, 32, 255, 256, 1000, 2**10, 2**14, 2**16)


@pytest.mark.statistical
def test_neighbours_are_not_correlated():
  keys = some_keys()
  for i, key in enumerate(keys):
    drawn = draw(key)
    for lag in LAGS:
      size = NUM_ELEMENTS - lag
      found = correlation(drawn[lag:], drawn[:size])
      limit = correlation_limit(size, len(keys) * len(LAGS))
      assert abs(found) <= limit, (i, lag)


@pytest.mark.statistical
def test_low_and_high_halves_of_neighbours_are_not_correlated():
  keys = some_keys()
  for i, key in enumerate(keys):
    low, high = draw(key).view(np.uint16).reshape(-1, 2).T.astype(np.float64)
    limit = correlation_limit(NUM_ELEMENTS, 2 * len(keys))
    assert abs(correlation(low * 2**16, high * 2**16)) <= limit, i
    found = correlation(low[1:] * 2**16, low[:-1] * 2**16)
    assert abs(found) <= limit, i


@pytest.mark.statistical
def test_streams_of_two_keys_are_not_correlated():
  pairs = list(itertools.combinations(some_keys()[:3], 2))
  for i, (a, b) in enumerate(pairs):
    first, second = draw(a), draw(b)
    limit = correlation_limit(NUM_ELEMENTS, 33 * len(pairs))
    assert abs(correlation(first, second)) <= limit, i
    differ = first ^ second
    for bit in range(32):
      ones = np.count_nonzero(differ >> bit & 1)
      limit = bounds.bernstein(NUM_ELEMENTS / 4, 0.5, 33 * len(pairs))
      assert abs(ones - NUM_ELEMENTS / 2) <= limit, (i, bit)


@pytest.mark.statistical
def test_streams_whose_first_rounds_meet_are_not_correlated():
  # Positions p of one key and p + 12345 of the other enter the first round
  # alike; the second word of the key has to part them.
  rng = np.random.default_rng(1)
  pairs = rng.integers(2**32, size=(8, 3), dtype=np.uint32)
  for i, (first, one, other) in enumerate(pairs):
    a = draw(key_of(first, one))
    b = draw(key_of((int(first) - 12345) % 2**32, other), start=12345)
    limit = correlation_limit(NUM_ELEMENTS, len(pairs))
    assert abs(correlation(a, b)) <= limit, i


@pytest.mark.statistical
def test_keys_of_consecutive_numbers_are_uniform():
  keys = random_bits.fold_in(random_bits.seed_key(0), tf.range(2**16)).numpy()
  assert np.unique(keys, axis=0).shape == keys.shape
  low, high = bounds.chi_square(255, 8)
  for byte in keys.view(np.uint8).reshape(-1, 8).T:
    counts = np.bincount(byte, minlength=256)
    assert low <= np.sum((counts - 256) ** 2) / 256 <= high


@pytest.mark.statistical
@pytest.mark.parametrize('probability', [0.03, 0.3])
@pytest.mark.gate_every(2)
def test_draws_of_two_elements_are_hardly_correlated(probability):
  """As the module says: by 0.002 at most; 0.0005 is what as many keys show."""
  rng = np.random.default_rng(5)
  keys = tf.constant(rng.integers(0, 2**32, [2, 2**22], dtype=np.uint32))

  def fires(position):
    bits = random_bits.element_bits(keys, tf.constant(position, tf.uint32))
    return bits.numpy() < probability * 2**32

  first = fires(0)
  found = {}
  for distance in (*(2**i for i in range(24)), 3, 3072):
    second = fires(distance)
    both = np.mean(first & second) - np.mean(first) * np.mean(second)
    found[distance] = both / (probability * (1 - probability))
  assert max(map(abs, found.values())) < 0.004, found


@pytest.mark.parametrize('words', [2, 3])
def test_requantizing_key_differs_and_keeps_the_stratum(words):
  key = tf.constant([3, 5, 7][:words], tf.uint32)
  again = random_bits.requantizing_key(key).numpy()
  assert again.shape == (words,)
  assert list(again[:2]) != [3, 5]
  assert list(again[2:]) == [7][: words - 2]
