"""Limits of codes: empty variables, many elements, any number of workers."""

import types

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import wrapper
from terngrad.codec.methods import registry
from terngrad.codec.methods import validation
from terngrad.codec.methods.wrappers import ranges

# 2**32 elements in all.
LARGE = (65536, 32768), (65536, 32768)


@pytest.mark.parametrize(
  'text', ['demo:count=1', 'randomk:ratio=1e-9', 'topk:ratio=1e-9']
)
def test_more_elements_than_indices_can_name_are_refused(text):
  with pytest.raises(ValueError, match='at most 2147483647 elements in all'):
    registry.method(text).messages(LARGE)


@pytest.mark.parametrize('size', [1000, 2**31 - 1024, 2**31, 2**33])
def test_padding_of_any_variable_begins_at_its_end(size):
  workers = max(1, size // 1024)
  count = ranges.width(size, workers)
  for number in (0, workers - 1):
    (found,) = ranges.clear_padding(
      [tf.ones([count])], tf.constant(number), [size], workers
    )
    inside = min(count, size - number * count)
    assert found.numpy().tolist() == [1.0] * inside + [0.0] * (count - inside)


@pytest.mark.parametrize('kind', sorted(registry.KINDS))
def test_the_payload_of_an_empty_variable_is_valid(kind):
  codec = registry.parse(kind)
  empty = [tf.zeros([0])]
  probe = codec.probe(empty)
  # The stratum follows.
  numbers = [1, 2, 0] if 'stratified' in kind else [1, 2]
  key = tf.constant(numbers, tf.uint32)
  words = codec.encode(empty, probe, probe, key).numpy()
  np.testing.assert_array_equal(validation.validate(codec, words, 0), words)


def test_negative_zeros_past_the_end_are_refused():
  codec = registry.parse('fp16')
  gradient = [tf.ones([1])]
  probe = codec.probe(gradient)
  key = tf.constant([1, 2], tf.uint32)
  words = codec.encode(gradient, probe, probe, key).numpy()
  validation.validate(codec, words, 1)
  words[0] = words[0] | -0x80000000
  with pytest.raises(ValueError, match='zeros past the last'):
    validation.validate(codec, words, 1)


def test_a_wrapper_carries_and_finishes_as_what_it_wraps():
  recorded = types.SimpleNamespace(
    carry=lambda *arguments: ('carried', *arguments),
    finish=lambda *arguments: ('finished', *arguments),
  )

  class Mine(wrapper.Wrapper):
    def __init__(self):
      self.method = recorded

  mine = Mine()
  assert mine.carry(1, 2) == ('carried', 1, 2)
  assert mine.finish(1, 2, 3, 4) == ('finished', 1, 2, 3, 4)


# Each case is compiled. Of these numbers of workers the fast gate has, for each
# code, those beside it.
NUMBERS = (3, 5, 6)
IN_GATE = {
  'ternary': NUMBERS,
  'ternary:packing=radix,workers=8': (3,),
  'ternary:group_size=8': (5,),
  'qsgd': (6,),
}


@pytest.mark.parametrize(
  ('text', 'workers'),
  [
    pytest.param(
      *(text, number), marks=() if number in chosen else pytest.mark.slow
    )
    for text, chosen in IN_GATE.items()
    for number in NUMBERS
  ],
)
def test_means_of_any_number_of_workers_have_the_same_bits(text, workers):
  codec, shapes = registry.parse(text), [[40], [60]]
  gradients = [tf.ones([40]), tf.linspace(-1.0, 1.0, 60)]
  probe = codec.probe(gradients) * 1.7
  words = tf.stack(
    [
      codec.encode(gradients, probe, probe, tf.constant([1, i], tf.uint32))
      for i in range(workers)
    ]
  )

  def decode(words, probe):
    return codec.decode_sum([words], probe, shapes, 1 / workers)

  expected = tf.concat(decode(words, probe), axis=0).numpy()
  traced = tf.function(decode, autograph=False, jit_compile=True)
  found = tf.concat(traced(words, probe), axis=0).numpy()
  np.testing.assert_array_equal(found, expected)
  fast = codec.on_kernels().decode_sum([words], probe, shapes, 1 / workers)
  np.testing.assert_array_equal(tf.concat(fast, axis=0).numpy(), expected)
