"""Packings of ternary codes: golden words and round trips."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from terngrad.codec import contract
from terngrad.codec import packing
from terngrad.codec import registry
from tests.codec import bounds
from tests.codec import conformance

PACKINGS = pytest.mark.parametrize('name', packing.PACKINGS)


class TestBase3(conformance.TernaryConformance):
  """The default codec of the paper: c = 2.5, base 3."""

  per_word = 20

  def make(self):
    return registry.ternary()

  def wish(self, gradient):
    return min(np.abs(gradient).max(), 2.5 * gradient.std())


class TestTwoBit(TestBase3):
  per_word = 16

  def make(self):
    return registry.ternary(packing='two_bit')


def signed(word):
  """The int32 that has the bits of a word below 2**32."""
  return word - 2**32 if word >= 2**31 else word


def one_word(name, codes):
  """The word that holds one code a plane."""
  planes = [tf.constant([code]) for code in codes]
  (word,) = packing.PACKINGS[name]().pack(planes).numpy()
  return word


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
  ],
)
def test_word_is_golden(name, codes, expected):
  assert one_word(name, codes) == signed(expected)


@pytest.mark.parametrize(
  ('name', 'expected'),
  [
    # Three words, padded with the digit 1 of code 0. Word 0 holds elements 0
    # and 3, word 1 elements 1 and 4, word 2 elements 2 and so on.
    ('base3', [1 - 1, 1 + 3**11, 1 + 1]),
    ('two_bit', [1 - 1, 1 + 4**11, 1 + 1]),
  ],
)
def test_payload_deals_elements_in_planes_and_pads_with_code_zero(
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
def test_every_code_survives_at_every_place(name):
  made = packing.PACKINGS[name]()
  size = made.elements_per_word
  # Word i * 3 + d holds code d - 1 at place i, and random codes elsewhere.
  codes = conformance.rng().integers(-1, 2, size=(size, 3 * size))
  for place in range(size):
    codes[place, 3 * place : 3 * place + 3] = [-1, 0, 1]
  words = made.pack(list(tf.constant(codes, tf.int32)))
  assert words.dtype == tf.int32
  np.testing.assert_array_equal(tf.stack(made.unpack(words)), codes)


@PACKINGS
@bounds.few_examples
@hypothesis.given(
  codes=strategies.lists(strategies.sampled_from([-1, 0, 1]), max_size=90)
)
def test_any_list_of_codes_comes_back(name, codes):
  codec = registry.ternary(packing=name)
  decoded = conformance.there_and_back(codec, np.array(codes, 'f'), own=1.0)
  np.testing.assert_array_equal(decoded, codes)


def test_codes_do_not_depend_on_the_packing():
  # An element draws by its index, wherever it is packed.
  gradient = conformance.rng().normal(size=1003)
  decoded = [
    conformance.there_and_back(registry.ternary(packing=name), gradient)
    for name in sorted(packing.PACKINGS)
  ]
  np.testing.assert_array_equal(decoded[0], decoded[1])


@PACKINGS
def test_packing_takes_ternary_codes_to_words(name):
  made = packing.PACKINGS[name]()
  assert (made.name, made.levels) == (name, 1)
  assert made.domain == (contract.CODES, contract.WORDS)
