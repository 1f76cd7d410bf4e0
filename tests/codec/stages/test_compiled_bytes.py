"""What compiled codecs read and write, by the program that XLA made of them.

The program is that for CPUs, also of what is meant for GPUs.
"""

import re

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.codec.stages import tracing

SIZE = 2_000_003
# What is read and written at least: the gradient and its words.
LEAST = 4 * SIZE + 4 * -(-SIZE // 20)

_BYTES = {'pred': 1, 's8': 1, 'u8': 1, 's32': 4, 'u32': 4, 'f32': 4, 'f64': 8}
_FREE = ('parameter', 'constant', 'bitcast', 'tuple', 'get-tuple-element')


def bytes_of(shape):
  """Of an array's shape, 'f32[3,4]{1,0}', or of a tuple's."""
  total = 0
  for kind, dimensions in re.findall(r'(\w+)\[([\d,]*)\]', shape):
    sides = [int(side) for side in dimensions.split(',') if side]
    total += _BYTES[kind] * int(np.prod(sides))
  return total


_INSTRUCTION = re.compile(
  r'%([\w.-]+) = (\w+\[[\d,]*\]|\([^()]*\))\S* ([\w-]+)\((.*?)\)'
  r'(?:.*?calls=%([\w.-]+))?'
)


def bytes_accessed(function, *arguments):
  """Operands and results of all instructions of the compiled program.

  Of an operand of which an instruction takes slices alone, these.
  """
  compiled = tracing.function(function, jit_compile=True)
  text = compiled.experimental_get_compiler_ir(*arguments)(
    stage='optimized_hlo'
  )
  bodies = {
    name: [found for line in body.splitlines() if (found := parsed(line))]
    for name, body in re.findall(r'\n%([\w.-]+) \(.*?\{\n(.*?)\n\}', text, re.S)
  }
  entry = text[text.index('ENTRY') :]
  found = [one for line in entry.splitlines()[1:] if (one := parsed(line))]
  assert len(found) == entry.count(' = ')
  shapes = {name: shape for name, shape, *_ in found}
  total = 0
  for _, shape, kind, operands, called in found:
    if kind in _FREE:
      continue
    total += bytes_of(shape)
    for index, name in enumerate(operands):
      whole = bytes_of(shapes[name])
      total += min(whole, bytes_read(bodies.get(called, []), index, whole))
  return total


def parsed(line):
  """(name, shape, kind, operands, name of the computation called or None)."""
  match = _INSTRUCTION.search(line)
  if not match:
    return None
  name, shape, kind, operands, called = match.groups()
  if kind != 'parameter':
    operands = re.findall(r'%([\w.-]+)', operands)
  return name, shape, kind, operands, called


def bytes_read(body, index, whole):
  """Of a computation's parameter: its slices, where it takes nothing else."""
  total = 0
  names = [one[0] for one in body if one[2:4] == ('parameter', str(index))]
  for _, shape, kind, operands, _ in body:
    if kind != 'parameter' and names and names[0] in operands:
      total += bytes_of(shape) if kind == 'slice' else whole
  return total if names else whole


@pytest.mark.parametrize('text', ['ternary', 'ternary:dither=stratified'])
def test_encoding_reads_the_gradient_once_and_writes_its_words(text):
  codec = registry.parse(text, 8)
  key = tf.zeros([3], tf.uint32)
  total = bytes_accessed(
    lambda gradient, local_probe, key: codec.encode(
      [gradient], local_probe, local_probe, key
    ),
    tf.zeros([SIZE]),
    tf.ones([1]),
    key,
  )
  assert total < 1.3 * LEAST


@pytest.mark.parametrize(
  'text', ['ternary', 'ternary:scaler_rule=stddev', 'ternary:clip_factor=0']
)
def test_a_probe_for_gpus_reads_the_gradient_once(text):
  codec = registry.parse(text).on_gpus()
  total = bytes_accessed(lambda g: codec.probe([g]), tf.zeros([SIZE]))
  # XLA of TensorFlow 2.20 does not join reductions of different kinds.
  times = 2 if tf.__version__.startswith('2.20.') else 1
  assert total < 1.3 * times * 4 * SIZE


@pytest.mark.parametrize('packing', ['base3', 'two_bit'])
def test_decoding_writes_the_gradient_once(packing):
  codec = registry.ternary(packing=packing)
  words = tf.zeros([1, codec.num_words(SIZE)], tf.int32)
  total = bytes_accessed(
    lambda words, shared_probe: codec.decode_sum(
      [words], shared_probe, [(SIZE,)], 0.5
    ),
    words,
    tf.ones([1]),
  )
  assert total < 1.3 * LEAST


def test_count_includes_only_the_slices_that_are_read():
  total = bytes_accessed(lambda v: v[:100] + v[900:], tf.zeros([1000]))
  assert total == 4 * 300


def test_count_includes_intermediate_results():
  def work(values):
    return tf.cumsum(tf.cumsum(values))

  assert bytes_accessed(lambda v: v * 2.0, tf.zeros([1000])) == 8000
  assert bytes_accessed(work, tf.zeros([1000])) > 16000
