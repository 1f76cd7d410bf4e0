"""Payloads of fixed gradients, by every kind of code.

`coded` calls the codecs: if their contract changes, only this function is
adapted. Gradients are multiples of 2**-10 and probes are given, so that words
are the same on every processor.
"""

import functools
import hashlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.codec.stages import tracing
from terngrad.reduce import bucketing
from terngrad.reduce import gradients
from tests.codec import one_round

SHAPES = ((7, 9), (45,))
SEED, STEP, WORKERS = 20170522, 1234, (3, 6)
# Operation by operation, compiled as training compiles them, or as kernels.
HOW = ('eager', 'XLA', 'kernels')
# Of the kinds of code: names that stay, to spellings that may change.
KINDS = {
  'identity': 'identity',
  'fp16': 'fp16',
  'ternary': 'ternary',
  'stddev': 'ternary:scaler_rule=stddev',
  'unclipped': 'ternary:clip_factor=0',
  'stratified': 'ternary:dither=stratified,workers=8',
  'groups of 64, unclipped': 'ternary:clip_factor=0,group_size=64',
  'groups of 32': 'ternary:group_size=32',
  'groups of 512': 'ternary:group_size=512',
  'thin': 'ternary:sharing=thin',
  'two_bit': 'ternary:packing=two_bit',
  'radix': 'ternary:packing=radix,workers=8',
  'radix of 64 bits': 'ternary:packing=radix,workers=8,word_bits=64',
  'bitmap_sign': 'ternary:packing=bitmap_sign',
  'huffman243': 'ternary:packing=huffman243',
  'eden3': 'eden3',
}


class Coded(NamedTuple):
  """The payloads of a codec for the gradients of `WORKERS`.

  Attributes:
    probes: float32 [workers, p], the local probes.
    keys: uint32 [workers, buckets, n], the keys of random draws.
    alone: int32 [workers, w], the payloads relative to the local probes.
    words: int32 [workers, w], the payloads relative to the shared probe.
    mean: float32 [elements], the decoded mean of `words`.
  """

  probes: np.ndarray
  keys: np.ndarray
  alone: np.ndarray
  words: np.ndarray
  mean: np.ndarray


def drawn(worker):
  """A worker's gradients, a list of float32."""
  made = []
  for index, shape in enumerate(SHAPES):
    i = np.arange(np.prod(shape), dtype=np.int64) + 1000 * index + 77 * worker
    # The third power makes most of them small.
    signed = (i * i * 37 + 11 * i) % 2003 - 1001
    steps = signed**3 // 10**6
    made.append((steps * 2.0**-10).astype(np.float32).reshape(shape))
  return made


def coded(text, probes=None, how='XLA'):
  """Codes the gradients of all workers.

  Args:
    text: spelling of the code.
    probes: float32 [workers, p] to code with; None for what they show.
    how: of `HOW`.

  Returns:
    A `Coded`.
  """
  specs = [policy.VariableSpec(f'v{i}', s) for i, s in enumerate(SHAPES)]
  codec = bucketing.gradient_codec(specs, [registry.parse(text)] * len(specs))
  if how == 'kernels':
    codec = bucketing.on_kernels(codec)
  requantizes = codec.buckets[0].method.carries

  def compiled(function):
    if how == 'eager':
      return function
    return tracing.function(function, jit_compile=codec.compiled)

  values = [[tf.constant(g) for g in drawn(worker)] for worker in WORKERS]
  probe = compiled(functools.partial(one_round.probe, codec))
  shown = np.stack([probe(local) for local in values])
  probes = shown if probes is None else probes
  shared = gradients.agree(tf.constant(probes))

  @compiled
  def encode(local, probe, shared, worker):
    keys = codec.keys(SEED, tf.constant(STEP, tf.int64), worker)
    if requantizes:
      carried = [[tf.reshape(gradient, [-1]) for gradient in local]]
      step = tf.constant(STEP, tf.int64)
      work = gradients.WorkerStep(SEED, step, len(WORKERS), worker, keys, probe)
      ((alone,),) = codec.carry(carried, work)
    else:
      alone = one_round.encode(codec, local, probe, probe, keys)
    return alone, one_round.encode(codec, local, probe, shared, keys), keys

  found = [
    encode(local, tf.constant(probe), shared, tf.constant(worker))
    for local, probe, worker in zip(values, probes, WORKERS, strict=True)
  ]
  alone, words, keys = (np.stack(part) for part in zip(*found, strict=True))
  decode = compiled(functools.partial(one_round.decode_mean, codec))
  mean = decode([tf.constant(words)], shared)
  mean = np.concatenate([np.ravel(part) for part in mean])
  return Coded(shown, keys, alone, words, mean)


def summary(found):
  """Returns a `Coded` for JSON: all probes; else the first and a digest."""

  def hexadecimal(array):
    words = np.ascontiguousarray(array).view(np.uint32)
    return [[f'{word:08x}' for word in row.ravel()] for row in words]

  result = {'probes': hexadecimal(found.probes)}
  for name in ('keys', 'alone', 'words'):
    array = getattr(found, name)
    result[name] = {
      'first': [row[:4] for row in hexadecimal(array)],
      'shape': list(array.shape),
      'digest': hashlib.sha256(array.tobytes()).hexdigest()[:16],
    }
  digest = hashlib.sha256(found.mean.tobytes()).hexdigest()[:16]
  return result | {'mean': digest}


def probes_of(recorded):
  """The probes of a `summary`, float32 [workers, p]."""
  words = [[int(word, 16) for word in row] for row in recorded['probes']]
  return np.array(words, np.uint32).view(np.float32)
