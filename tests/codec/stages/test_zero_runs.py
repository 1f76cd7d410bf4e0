"""Runs of zeros against an encoder that takes one byte after the other."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from terngrad.codec.methods import registry
from terngrad.codec.methods import validation
from terngrad.codec.stages import wire
from terngrad.codec.stages import zero_runs
from tests.codec import bounds
from tests.codec import conformance

PACKING = zero_runs.zero_runs()


def symbols_of(codes):
  """The numbers below 243 of codes in planes of five."""
  width = -(-len(codes) // 5)
  planes = np.pad(codes, [0, 5 * width - len(codes)]).reshape([5, width])
  return [int(s) for s in (planes + 1).T @ 3 ** np.arange(5)]


def bytes_of(symbols):
  """3LC's bytes, by its rule: up to 14 symbols of zeros are one."""
  found, run = [], 0

  def end():
    nonlocal run
    while run:
      length = min(run, 14)
      found.append(121 if length == 1 else 241 + length)
      run -= length

  for symbol in symbols:
    if symbol == 121:
      run += 1
    else:
      end()
      found.append(symbol)
  end()
  return found


def packed(codes):
  planes = [tf.constant(p) for p in plane_rows(codes)]
  return PACKING.pack(planes).numpy()


def plane_rows(codes):
  width = -(-len(codes) // 5)
  padded = np.pad(np.asarray(codes, np.int32), [0, 5 * width - len(codes)])
  return padded.reshape([5, width])


@bounds.few_examples
@hypothesis.given(
  strategies.lists(
    strategies.tuples(strategies.integers(0, 242), strategies.integers(1, 40)),
    max_size=30,
  ),
  strategies.booleans(),
)
def test_bytes_equal_those_of_the_reference_encoder(runs, zeros):
  symbols = [s for symbol, count in runs for s in [symbol] * count]
  if zeros:
    symbols = [121] * 31 + symbols + [121] * 29
  digits = np.array(symbols, int)[:, np.newaxis] // 3 ** np.arange(5) % 3 - 1
  codes = digits.T.reshape(-1)
  words = packed(codes)
  expected = bytes_of(symbols)
  used = 1 + -(-len(expected) // 4)
  assert words[0] == used
  found = words[1:].view(np.uint8)
  np.testing.assert_array_equal(found[: len(expected)], expected)
  assert not found[len(expected) :].any()
  again = wire.join(PACKING.unpack(tf.constant(words), len(symbols)))
  np.testing.assert_array_equal(again, codes)


@pytest.mark.parametrize('density', [0.01, 0.3175])
def test_expected_length_equals_the_mean_for_independent_codes(density):
  size = 200_000
  rng = conformance.rng()
  codes = (rng.random(size) < density) * rng.choice([-1, 1], size=size)
  used = packed(codes)[0]
  expected = zero_runs.zero_runs(density).expected(size)
  np.testing.assert_allclose(used, expected, rtol=0.02)


def test_damaged_payload_is_refused():
  codec = registry.parse('three_lc')
  values = np.zeros(400, np.float32)
  values[7] = 1.0
  words, _ = conformance.encode(codec, values)
  words = words.numpy()
  np.testing.assert_array_equal(validation.validate(codec, words, 400), words)
  used = words[0]
  for index, word in ((1, 0), (0, used - 1), (0, used + 1)):
    spoilt = words.copy()
    spoilt[index] = word
    with pytest.raises(ValueError, match='zero_runs: expected'):
      validation.validate(codec, spoilt, 400)


@pytest.mark.parametrize('code', ['threshold', 'three_lc'])
def test_remedy_for_too_many_elements_is_one_that_the_code_can_take(code):
  with pytest.raises(ValueError, match='at most 268435456 .* codec_rules'):
    registry.parse(code).words_of([wire.MAX_VARIABLE_ELEMENTS + 1])
