"""Codecs on the native kernels: the same words and floats, at memory speed."""

import tensorflow as tf

from terngrad.codec import chain
from terngrad.codec import contract
from terngrad.codec import statistics
from terngrad.codec import ternary
from terngrad.native import ops

# The base in which the kernels know how to write digits, of each packing.
_RADICES = {'base3': 3, 'two_bit': 4}


def accelerate(codecs):
  """The codecs of a model's variables, on CPUs with `native.available()`.

  For the same probes words and floats stay as they are, to the bit; probes
  agree to 1e-6.

  Args:
    codecs: the `contract.Codec` of each variable.

  Returns:
    The same number of them. Where one or more run as kernels, which XLA knows
    nothing of, none wants to be compiled: the others compile themselves.
  """
  distinct = dict.fromkeys(codecs)
  fast = {codec: on_kernels(codec) for codec in distinct}
  if all(codec is fast[codec] for codec in distinct):
    return tuple(codecs)
  for codec in distinct:
    if fast[codec] is codec:
      fast[codec] = _self_compiled(codec)
  return tuple(fast[codec] for codec in codecs)


def on_kernels(codec):
  """The codec with kernels for its functions; itself where it has none.

  Args:
    codec: a `contract.Codec`.

  Returns:
    A `contract.Codec`.
  """
  *before, packing = codec.stages
  quantizer = before[-1] if before else None
  if (
    isinstance(quantizer, contract.Quantizer)
    and quantizer.quantize is ternary.quantize
    and packing.name in _RADICES
  ):
    return _with_kernels(codec, quantizer, _RADICES[packing.name])
  return codec


def _self_compiled(codec):
  encode = codec.encode_pieces
  if not codec.traits.lossless:
    # Plain floats are moved as they are; compiled code would copy them.
    encode = tf.function(encode, jit_compile=True)
  return codec._replace(
    probe=tf.function(codec.probe, jit_compile=True),
    encode_pieces=encode,
    decode_sum=tf.function(codec.decode_sum, jit_compile=True),
    compiled=False,
  )


def _with_kernels(codec, quantizer, radix):
  """`codec`, a chain of clips, the ternary quantizer and a packing."""
  clips = any(isinstance(stage, contract.Clip) for stage in codec.stages)

  def probe(gradients):
    stats = statistics.Statistics(*ops.statistics(gradients))
    return chain.wish(codec.stages, stats)

  def encode_pieces(pieces, sizes, own, shared, key):
    limits = own if clips else tf.fill([len(sizes)], float('inf'))
    factors = quantizer.factor(shared)
    return ops.encode(pieces, sizes, limits, factors, key, radix)

  def decode_sum(parts, shared, shapes, scale=1.0):
    return ops.decode_sum(parts, shared, shapes, scale, radix)

  return codec._replace(
    probe=probe,
    encode_pieces=encode_pieces,
    decode_sum=decode_sum,
    compiled=False,
  )
