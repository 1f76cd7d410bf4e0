"""Places of few elements: every number of words, every set of small sizes."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods.sparse import elias_fano


def round_trip(chosen, size):
  words = elias_fano.pack(tf.constant(chosen, tf.int32), size)
  assert words.shape == (elias_fano.num_words(len(chosen), size),)
  return elias_fano.unpack(words, len(chosen), size).numpy()


def test_all_sets_of_indices_below_five_round_trip():
  for size in range(1, 6):
    for number in range(1, size + 1):
      for chosen in itertools.combinations(range(size), number):
        np.testing.assert_array_equal(round_trip(chosen, size), chosen)


@pytest.mark.parametrize(
  ('number', 'size'), [(1, 10**6), (10**4, 10**6), (999_999, 10**6), (33, 4097)]
)
def test_many_indices_round_trip(number, size):
  rng = np.random.default_rng(3)
  chosen = np.sort(rng.choice(size, number, replace=False))
  np.testing.assert_array_equal(round_trip(chosen, size), chosen)
  ends = np.arange(size - number, size)
  np.testing.assert_array_equal(round_trip(ends, size), ends)


def test_words_are_golden():
  # n / k = 10 / 2: 2 low bits; 2 + 2 + 1 bits of the string.
  words = elias_fano.pack(tf.constant([3, 8]), 10).numpy()
  # Low bits: 3 is 11, 8 is 00. High parts 0 and 2: bits 0 + 0 and 2 + 1.
  np.testing.assert_array_equal(words, [1, 1, 0b1001])


def test_one_percent_takes_less_than_nine_bits_per_index():
  assert 32 * elias_fano.num_words(10**4, 10**6) < 8.6 * 10**4


def test_any_words_unpack_to_nonnegative_numbers():
  rng = np.random.default_rng(4)
  for number, size in ((1, 1), (7, 7), (5, 100), (40, 4000)):
    for _ in range(10):
      words = rng.integers(-(2**31), 2**31, elias_fano.num_words(number, size))
      found = elias_fano.unpack(
        tf.constant(words, tf.int32), number, size
      ).numpy()
      assert found.shape == (number,)
      assert np.all(found >= 0)
