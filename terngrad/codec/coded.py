"""Methods of one round: each worker sends its gradients as words of a code."""

import tensorflow as tf

from terngrad.codec import accelerated
from terngrad.codec import method
from terngrad.codec.stages import random_bits


def as_method(code):
  """The method that sends gradients as a code.

  Args:
    code: `contract.Codec`; or a `method.Method`, which is returned.

  Returns:
    A `method.Method`.
  """
  if isinstance(code, method.Method):
    return code

  def messages(shapes):
    sizes = method.sizes_of(shapes)
    words = code.words_of(sizes)
    if code.decode_sums is None:
      return ((method.gathered(words, code.packing),),)
    levels = code.quantizer.levels if code.quantizer else None
    message = method.Message(
      method.SUM, words, sum(sizes), code.packing, levels
    )
    return ((message,),)

  def begin(gradients, states, context):
    del states
    return gradients, code.probe(method.each(gradients, context))

  def carry(gradients, context):
    # As if the worker's own probe were the agreed one.
    own = context.own
    return code.encode_pieces(
      gradients, context.sizes, own, own, _key(context.key, context)
    )

  def send(gradients, states, received, context):
    del received
    own, shared, key = context.own, context.shared, context.key
    if code.requantizes:
      key = _key(random_bits.for_requantizing(key), context)
      words = code.requantize(gradients[0], own, shared, context.shapes, key)
    else:
      words = code.encode_pieces(
        gradients, context.sizes, own, shared, _key(key, context)
      )
    return [words], states

  def decode(received, states, context):
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

  def estimate(words, context):
    decoded = code.decode_sum(
      [words[0][tf.newaxis]], context.shared, context.shapes
    )
    return [tf.reshape(gradient, [-1]) for gradient in decoded]

  return method.Method(
    name=code.name,
    traits=code.traits,
    begin=begin,
    messages=messages,
    send=(send,),
    decode=decode,
    estimate=estimate,
    scope=code.scope,
    carry=carry if code.requantizes else None,
    carry_words=lambda shapes: code.words_of(method.sizes_of(shapes)),
    num_probes=code.num_probes,
    strata=code.quantizer.strata if code.quantizer else 0,
    max_workers=code.packing.max_workers,
    digits=code.digits,
    unit=code.unit,
    compiled=code.compiled,
    on_kernels=lambda: as_method(accelerated.on_kernels(code)),
    on_gpus=lambda: as_method(accelerated.probing_once(code)),
  )


def _key(key, context):
  """The key of elements that are counted from the start of the whole bucket."""
  return random_bits.from_element(key, context.start)
