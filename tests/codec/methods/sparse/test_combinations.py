"""Numbers of combinations: every subset, every size, and any words."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from terngrad import native
from terngrad.codec.methods.sparse import combination_layout
from terngrad.codec.methods.sparse import combinations
from terngrad.native import chunk_ops

LAYOUTS = ((64, 4096), (33, 2112), (1, 10), (4, 64), (128, 8192), (7, 8))


def implementations():
  found = [(combinations.pack, combinations.unpack)]
  if native.available():
    found.append((chunk_ops.pack_combinations, chunk_ops.unpack_combinations))
  return found


def subsets(rng, number, size, rows):
  rows = [np.sort(rng.choice(size, number, replace=False)) for _ in range(rows)]
  ends = [np.arange(number), np.arange(size - number, size)]
  return np.array([*rows, *ends], np.int32)


@pytest.mark.parametrize('size', range(1, 7))
def test_each_subset_has_another_number(size):
  for number in range(1, size + 1):
    layout = combination_layout.layout(number, size)
    rows = np.array([*itertools.combinations(range(size), number)], np.int32)
    words = combinations.pack(tf.constant(rows), layout)
    assert words.shape == (len(rows), layout.num_words)
    assert len({tuple(row) for row in words.numpy()}) == len(rows)
    np.testing.assert_array_equal(combinations.unpack(words, layout), rows)


@pytest.mark.parametrize(('number', 'size'), LAYOUTS)
def test_kernels_give_the_words_of_tensorflow_and_their_indices(number, size):
  layout = combination_layout.layout(number, size)
  rows = subsets(np.random.default_rng(3), number, size, 5)
  expected = combinations.pack(tf.constant(rows), layout)
  for pack, unpack in implementations():
    np.testing.assert_array_equal(pack(tf.constant(rows), layout), expected)
    np.testing.assert_array_equal(unpack(expected, layout), rows)


def test_words_are_golden():
  # 2 of 100: the layout with no table wins, 7 low bits of each index.
  layout = combination_layout.CombinationLayout(2, 2, 24, 1, 1)
  words = combinations.pack(tf.constant([[6, 99]]), layout).numpy()
  # Upper bits 1 and 24: (0 + 1 choose 1) + (1 + 24 choose 2); low bits 2 and 3:
  # bit 0 is 0 and 1, bit 1 is 1 and 1.
  assert words.tolist() == [[1 + math.comb(25, 2), 0b1110]]


def test_sixty_four_of_4096_take_fifteen_words():
  assert combination_layout.layout(64, 4096) == (64, 3, 511, 9, 6)


@pytest.mark.parametrize(('number', 'size'), LAYOUTS)
def test_any_words_give_equal_indices_that_are_in_the_layout(number, size):
  layout = combination_layout.layout(number, size)
  rng = np.random.default_rng(4)
  words = rng.integers(-(2**31), 2**31, [4, layout.num_words])
  words = tf.constant(np.concatenate([words, 0 * words, 0 * words - 1]))
  words = tf.cast(words, tf.int32)
  first, *others = [unpack(words, layout) for _, unpack in implementations()]
  assert first.shape == (12, number)
  largest = ((layout.largest + 1) << layout.low_bits) - 1
  largest += 0 if layout.low_bits else number - 1
  assert 0 <= first.numpy().min()
  assert first.numpy().max() <= largest
  for other in others:
    np.testing.assert_array_equal(other, first)
