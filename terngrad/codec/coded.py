"""Methods of one round: each worker sends its gradients as words of a code."""

import functools

import tensorflow as tf

from terngrad.codec import accelerated
from terngrad.codec import method
from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits


def as_method(code):
  """The method that sends gradients as a code.

  Args:
    code: `contract.Codec`; or a `method.Method`, which is returned.

  Returns:
    A `method.Method`.

  Raises:
    ValueError: it is neither.
  """
  if isinstance(code, method.Method):
    return code
  if not isinstance(code, contract.Codec):
    raise ValueError(
      f'code: expected a Codec or a Method, received {code!r}. Make one of a '
      "text such as 'ternary' by parse_codec."
    )
  return method.Method(
    name=code.name,
    traits=code.traits,
    begin=functools.partial(_begin, code),
    messages=functools.partial(_messages, code),
    send=(functools.partial(_send, code),),
    decode=functools.partial(_decode, code),
    estimate=functools.partial(_estimate, code),
    scope=code.scope,
    carry=functools.partial(_carry, code) if code.requantizes else None,
    carry_words=lambda shapes: code.words_of(method.sizes_of(shapes)),
    num_probes=code.num_probes,
    strata=code.quantizer.strata if code.quantizer else 0,
    max_workers=code.packing.max_workers,
    agrees=code.agrees,
    digits=code.digits,
    unit=code.unit,
    compiled=code.compiled,
    on_kernels=lambda: as_method(accelerated.on_kernels(code)),
    on_gpus=lambda: as_method(accelerated.probing_once(code)),
  )


def _messages(code, shapes):
  sizes = method.sizes_of(shapes)
  words = code.words_of(sizes)
  if code.decode_sums is None:
    return ((method.gathered(words, code.packing),),)
  levels = code.quantizer.levels if code.quantizer else None
  message = method.Message(method.SUM, words, sum(sizes), code.packing, levels)
  return ((message,),)


def _begin(code, gradients, states, context):
  del states
  return gradients, code.probe(method.each(gradients, context))


def _carry(code, gradients, context):
  # As if the worker's own probe were the agreed one.
  return _encode(code, gradients, context, context.own)


def _send(code, gradients, states, received, context):
  del received
  if not code.requantizes:
    return [_encode(code, gradients, context, context.shared)], states
  key = _key(random_bits.for_requantizing(context.key), context)
  words = code.requantize(
    gradients[0], context.own, context.shared, context.shapes, key
  )
  return [words], states


def _encode(code, gradients, context, shared):
  key = _key(context.key, context)
  return code.encode_pieces(gradients, context.sizes, context.own, shared, key)


def _key(key, context):
  """The key of elements that are counted from the start of the whole bucket."""
  return random_bits.from_element(key, context.start)


def _decode(code, received, states, context):
  ((arrived,),) = received
  scale = 1.0 / context.num_workers
  # Graphs and XLA turn a division by a constant into this product, which may
  # differ in the last bit; so that eager code agrees, all multiply.
  if isinstance(arrived, method.Payloads):
    means = code.decode_sum(
      arrived.parts, context.shared, context.shapes, scale
    )
  else:
    sums = arrived.total
    means = code.decode_sums(sums, context.shared, context.shapes, scale)
  return means, states


def _estimate(code, words, context):
  decoded = code.decode_sum(
    [words[0][tf.newaxis]], context.shared, context.shapes
  )
  return [tf.reshape(gradient, [-1]) for gradient in decoded]
