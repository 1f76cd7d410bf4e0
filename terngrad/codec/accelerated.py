"""Codecs for a kind of device: the same words and floats, at memory speed."""

import functools

import tensorflow as tf

from terngrad import native
from terngrad.codec.stages import chain
from terngrad.codec.stages import contract
from terngrad.codec.stages import statistics
from terngrad.codec.stages import ternary
from terngrad.native import ops

# The digits that there are kernels to decode.
_DECODED = ((3, 20), (4, 16))


def on_kernels(codec):
  """The codec with kernels for its functions; itself where it has none.

  Every ternary code is probed by a kernel, and sums of its codes are decoded
  by one. Those of 32-bit digits are encoded by one, and base3 and two_bit
  decoded too; the other functions compile themselves. See `Codec.native` too.

  Args:
    codec: a `contract.Codec`.

  Returns:
    A `contract.Codec`.
  """
  if codec.native and (native.available() or codec.compiled):
    # Compiled apart without them too: joined to the update it rounds otherwise.
    return codec.native() if native.available() else _self_compiled(codec)
  if not native.available():
    return codec
  quantizer = codec.quantizer
  if codec.decode_sums and not quantizer:
    return codec._replace(unit=contract.ONE)
  kinds = (ternary.quantize, ternary.quantize_in_strata)
  if not quantizer or quantizer.quantize not in kinds or codec.group_size:
    return codec
  clips = any(isinstance(stage, contract.Clip) for stage in codec.stages)
  digits = getattr(codec.packing, 'digits', None)
  codec = _self_compiled(codec)._replace(
    probe=_probe(codec), decode_sums=ops.scale_sums, unit=contract.SCALER
  )
  if digits:
    codec = codec._replace(encode_pieces=_encode(quantizer, clips, digits))
  if digits in _DECODED:
    codec = codec._replace(
      decode_sum=functools.partial(ops.decode_sum, digits=digits), digits=digits
    )
  return codec


def probing_once(codec):
  """The codec for GPUs: its probe reads gradients once.

  Args:
    codec: a `contract.Codec`.

  Returns:
    A `contract.Codec`; itself where there is nothing to read twice. Words and
    floats are the same for the same probes, and probes agree to 1e-6.
  """
  shows_statistics = codec.quantizer or any(
    isinstance(stage, contract.Clip) for stage in codec.stages
  )
  if not shows_statistics or codec.group_size:
    return codec

  def probe(gradients):
    stats = [statistics.in_one_pass(gradient) for gradient in gradients]
    return tf.stack([chain.local_scaler(codec.stages, one) for one in stats])

  return codec._replace(probe=probe)


def _probe(codec):
  def probe(gradients):
    contract.check_gradients(gradients)
    stats = statistics.Statistics(*ops.statistics(gradients))
    return chain.local_scaler(codec.stages, stats)

  clips = [s for s in codec.stages if isinstance(s, contract.Clip)]
  factors = [clip.clip_factor for clip in clips] or [0.0]
  if codec.quantizer.clips or len(factors) > 1 or factors[0] is None:
    return probe

  def clipped(gradients):
    contract.check_gradients(gradients)
    return ops.clipped(gradients, factors[0])

  return clipped


def _encode(quantizer, clips, digits):
  options = ops.EncodeOptions(*digits, clips, bool(quantizer.strata))
  return functools.partial(ops.encode, options=options)


def _self_compiled(codec):
  """The codec with functions that XLA compiles one by one."""

  def compiled(function):
    return function and tf.function(function, jit_compile=True)

  encode = codec.encode_pieces
  return codec._replace(
    probe=compiled(codec.probe),
    # Plain floats are moved as they are; compiled code would copy them.
    encode_pieces=encode if codec.traits.lossless else compiled(encode),
    decode_sum=compiled(codec.decode_sum),
    decode_sums=compiled(codec.decode_sums),
    compiled=False,
  )
