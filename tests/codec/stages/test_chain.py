"""How stages make a codec, and what they must not make."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import chain
from terngrad.codec.stages import clipping
from terngrad.codec.stages import float_words
from terngrad.codec.stages import packing
from terngrad.codec.stages import ternary
from terngrad.codec.stages import tracing
from terngrad.codec.stages import wire
from tests.codec import conformance

CLIP = clipping.clip_by_stddev(2.5)
TERNARIZE = ternary.ternarize()
BASE3 = packing.base3()
FLOATS = float_words.float32_words()


class TwoLevels(ternary.Ternarize):
  levels = 2


class WideBase3(packing.Positional):
  """As base3, and says that it has room for more."""

  def __init__(self):
    super().__init__('base3', 3)
    self.levels = 2


@pytest.mark.parametrize(
  ('stages', 'name'),
  [
    ((FLOATS,), 'float32_words'),
    ((TERNARIZE, BASE3), 'ternarize > base3'),
    ((CLIP, TERNARIZE, BASE3), 'clip_by_stddev(2.5) > ternarize > base3'),
    (
      (ternary.ternarize('stddev', 2.5), packing.two_bit()),
      'ternarize(stddev, 2.5) > two_bit',
    ),
  ],
  ids=lambda value: value if isinstance(value, str) else '',
)
def test_name_lists_the_stages(stages, name):
  assert chain.chain(*stages).name == name


@pytest.mark.parametrize(
  ('stages', 'message'),
  [
    ((), r'must end in words, received float at the end \(nothing\)'),
    ((CLIP,), r'received float at the end \(clip_by_stddev\(2\.5\)\)'),
    ((TERNARIZE,), r'received codes at the end \(ternarize\). Add a packing'),
    ((BASE3,), r'base3 takes codes, received float from the gradient'),
    ((CLIP, BASE3), r'base3 takes codes, received float from clip_by_stddev'),
    (
      (TERNARIZE, CLIP, BASE3),
      r'clip_by_stddev\(2\.5\) takes float, received codes from ternarize.* '
      r'order clip, quantizer, packing',
    ),
    (
      (TERNARIZE, TERNARIZE, BASE3),
      r'ternarize takes float, received codes from ternarize',
    ),
    ((TERNARIZE, FLOATS), r'float32_words takes float, received codes'),
    ((FLOATS, FLOATS), r'takes float, received words from float32_words'),
    ((TERNARIZE, BASE3, BASE3), r'takes codes, received words from base3'),
    (
      (CLIP, ternary.ternarize('stddev', 2.0), BASE3),
      r'ternarize\(stddev, 2\) bounds the elements itself.* received '
      r'clip_by_stddev\(2\.5\)\. Remove one',
    ),
    (
      (TwoLevels(), BASE3),
      r'base3 holds codes up to 1, ternarize makes codes up to 2\. Choose',
    ),
  ],
  ids=[
    'nothing',
    'clip alone',
    'no packing',
    'packing of codes alone',
    'no quantizer',
    'clip after quantizer',
    'two quantizers',
    'packing of floats after quantizer',
    'two packings of floats',
    'two packings of codes',
    'two bounds',
    'too many levels',
  ],
)
def test_stages_that_do_not_fit_are_an_error(stages, message):
  with pytest.raises(ValueError, match=message):
    chain.chain(*stages)


def test_packing_with_more_levels_than_codes_fits():
  chain.chain(TERNARIZE, WideBase3())


def test_traits_are_those_of_quantizer_else_of_packing():
  assert chain.chain(TERNARIZE, BASE3).traits == TERNARIZE.traits
  assert chain.chain(FLOATS).traits == FLOATS.traits


@pytest.mark.parametrize('compiled', [False, True])
def test_stages_get_planes_in_order_with_positions_and_shared_scaler(compiled):
  # Two variables, five elements, words of two: planes [0 1 2] and [3 4 -].
  seen = []

  class Shown(ternary.Ternarize):
    factor = staticmethod(tf.identity)

    def quantize(self, scaled, positions, key):
      seen.append(scaled.shape)
      assert positions.dtype == tf.uint32
      # What bits are drawn from is their sum; the key's other half stays.
      index = tf.bitcast(positions + key[0] - KEY[0], tf.int32)
      tf.debugging.assert_equal(key[1], KEY[1])
      return tf.cast(scaled, tf.int32) + 10_000 * index

  class TwoAWord(wire.Packing):
    name, elements_per_word, levels = 'two a word', 2, 1

    def pack(self, planes):
      return planes[0] + 100 * planes[1]

    unpack = None  # not looked at

  codec = chain.chain(Shown(), TwoAWord())
  variables = [tf.constant([[1.0], [2.0]]), tf.constant([3.0, 4.0, 5.0])]
  local_probe, shared_probe = tf.constant([2.0, 5.0]), tf.constant([9.0, 7.0])
  encode = tracing.function(codec.encode) if compiled else codec.encode
  words = encode(variables, local_probe, shared_probe, KEY)
  # Scaled they are [9 18 21] and [28 35 0], at [0 1 2] and [3 4 5].
  expected = [
    first + 10_000 * index + 100 * (second + 10_000 * (index + 3))
    for index, (first, second) in enumerate([(9, 28), (18, 35), (21, 0)])
  ]
  np.testing.assert_array_equal(words, expected)
  # A plane at a time needs less memory, all at once fewer eager calls.
  assert seen == ([(3,), (3,)] if compiled else [(6,)])


KEY = conformance.bucket_key()


def test_sum_is_dequantized_by_each_variables_scaler_and_takes_its_shape():
  codec = chain.chain(TERNARIZE, BASE3)
  variables = [tf.constant([[1.0, -1.0], [0.0, 1.0]]), tf.constant(1.0)]
  words = codec.encode(variables, tf.ones(2), tf.ones(2), KEY)
  three = tf.stack([words] * 3)
  decoded = codec.decode_sum([three], tf.constant([0.5, 10.0]), [(2, 2), ()])
  np.testing.assert_array_equal(decoded[0], [[1.5, -1.5], [0, 1.5]])
  np.testing.assert_array_equal(decoded[1], 30)
