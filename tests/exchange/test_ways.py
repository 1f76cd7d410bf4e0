import pytest

from terngrad.codec import gradients
from terngrad.codec import policy
from terngrad.codec import registry
from terngrad.exchange import ways


def codec_of(text, elements=2**20):
  specs = [policy.VariableSpec('v', (elements,))]
  return gradients.gradient_codec(specs, [registry.parse(text)])


@pytest.mark.parametrize(
  ('text', 'workers', 'way'),
  [
    ('ternary', 2, 'gather'),
    # Fewer words by two shots, but not by half.
    ('ternary', 4, 'gather'),
    ('ternary', 8, 'two_shot'),
    ('ternary', 64, 'two_shot'),
    # Words of a variable length cannot be cut, nor added.
    ('ternary:packing=huffman243', 8, 'gather'),
    ('identity', 8, 'gather'),
    ('fp16', 8, 'gather'),
    # 64-bit words are not cut; they are added.
    ('ternary:packing=radix,workers=8,word_bits=64', 8, 'reduce'),
  ],
)
def test_auto_weighs_bytes_and_work(text, workers, way):
  codec = codec_of(text)
  assert ways.choices(codec, workers, workers) == [way]


def test_a_way_that_a_code_cannot_take_is_a_gather():
  assert ways.choices(codec_of('identity'), 4, 4, 'two_shot') == ['gather']
  assert ways.choices(codec_of('ternary'), 4, 4, 'reduce') == ['gather']
  assert ways.choices(codec_of('ternary'), 2, 2, 'two_shot') == ['two_shot']


def test_words_are_those_of_the_formulas():
  # 20 trits a word; sums of 4 in base 9, 10 digits a word.
  words = 2**20 / 20
  costs = ways.sent_words(codec_of('ternary').buckets[0], 4, 4)
  assert costs['gather'] == pytest.approx(3 * words, rel=1e-4)
  assert costs['two_shot'] == pytest.approx(
    3 / 4 * words + 3 / 4 * 2**20 / 10, rel=1e-4
  )
  # And back as 1.6 bits, with a scaler a slice.
  assert costs[ways.LOSSY] == pytest.approx(
    3 / 4 * words + 3 / 4 * words, rel=1e-4
  )
  radix = codec_of('ternary:packing=radix,workers=4')
  costs = ways.sent_words(radix.buckets[0], 4, 4)
  assert costs['reduce'] == pytest.approx(2 * 3 / 4 * 2**20 / 10, rel=1e-4)


def test_alone_nothing_is_sent():
  assert set(
    ways.sent_words(codec_of('ternary').buckets[0], 4, 1).values()
  ) == {0}
