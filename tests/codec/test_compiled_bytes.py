"""What compiled codecs read and write, by the program that XLA made of them."""

import re

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import registry

SIZE = 2_000_003
# What is read and written at least: the gradient and its words.
LEAST = 4 * SIZE + 4 * -(-SIZE // 20)

_BYTES = {'pred': 1, 's8': 1, 'u8': 1, 's32': 4, 'u32': 4, 'f32': 4, 'f64': 8}
_FREE = ('parameter', 'constant', 'bitcast', 'tuple', 'get-tuple-element')


def bytes_of(shape):
  """Of an array's shape, 'f32[3,4]{1,0}'."""
  kind, dimensions = re.match(r'(\w+)\[([\d,]*)\]', shape).groups()
  sides = [int(side) for side in dimensions.split(',') if side]
  return _BYTES[kind] * int(np.prod(sides))


def bytes_accessed(function, *arguments):
  """Operands and results of all instructions of the compiled program."""
  compiled = tf.function(function, jit_compile=True)
  text = compiled.experimental_get_compiler_ir(*arguments)(
    stage='optimized_hlo'
  )
  entry = text[text.index('ENTRY') :]
  pattern = r'%([\w.-]+) = (\w+\[[\d,]*\])\S* ([\w-]+)\((.*?)\)'
  found = re.findall(pattern, entry)
  assert len(found) == entry.count(' = ')
  shapes = {name: shape for name, shape, _, _ in found}
  total = 0
  for _, shape, kind, operands in found:
    if kind not in _FREE:
      names = re.findall(r'%([\w.-]+)', operands)
      total += bytes_of(shape) + sum(bytes_of(shapes[n]) for n in names)
  return total


@pytest.mark.parametrize('text', ['ternary', 'ternary:dither=stratified'])
def test_encoding_reads_the_gradient_once_and_writes_its_words(text):
  codec = registry.parse(text, 8)
  key = tf.zeros([3], tf.uint32)
  total = bytes_accessed(
    lambda gradient, own, key: codec.encode([gradient], own, own, key),
    tf.zeros([SIZE]),
    tf.ones([1]),
    key,
  )
  assert total < 1.3 * LEAST


@pytest.mark.parametrize('packing', ['base3', 'two_bit'])
def test_decoding_writes_the_gradient_once(packing):
  codec = registry.ternary(packing=packing)
  words = tf.zeros([1, codec.num_words(SIZE)], tf.int32)
  total = bytes_accessed(
    lambda words, shared: codec.decode_sum([words], shared, [(SIZE,)], 0.5),
    words,
    tf.ones([1]),
  )
  assert total < 1.3 * LEAST


def test_the_count_sees_what_is_written_and_read_again():
  def work(values):
    return tf.cumsum(tf.cumsum(values))

  assert bytes_accessed(lambda v: v * 2.0, tf.zeros([1000])) == 8000
  assert bytes_accessed(work, tf.zeros([1000])) > 16000
