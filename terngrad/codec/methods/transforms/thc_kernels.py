"""`thc` with kernels that rotate, round and pack; what is small is compiled."""

import functools
from typing import NamedTuple

import tensorflow as tf

from terngrad import native
from terngrad.codec import method
from terngrad.codec.stages import random_bits
from terngrad.native import rotated_ops


def on_kernels(plain, code, table):
  """The same method with kernels.

  Args:
    plain: `method.Method`, of `thc`.
    code: its functions.
    table: int [16], its entries.

  Returns:
    A `method.Method`, whose words and means are the same to the bit. Where the
    kernels are not built its functions are compiled apart, as beside kernels:
    joined to those of a wrapper they round otherwise.
  """
  if not native.available():
    return method.self_compiled(plain)
  numbers = _Numbers(code)
  coding = _compiled(numbers.coding)
  of_sum = _compiled(numbers.of_sum)
  of_words = _compiled(numbers.of_words)
  entries = [int(entry) for entry in table]

  def send(gradients, states, received, context):
    if not sum(context.sizes):
      return plain.send[0](gradients, states, received, context)
    (message,) = code.messages(context.shapes)[0]
    scales, keys = coding(context)
    sizes, num_words = context.sizes, message.num_words
    words = rotated_ops.encode_table(
      gradients, sizes, scales, keys, num_words, entries
    )
    return [words], states

  def decode(received, states, context):
    if not sum(context.sizes):
      return plain.decode(received, states, context)
    sums, factors, signs = of_sum(received[0][0], context)
    shapes = context.shapes
    return rotated_ops.decode_table(sums, factors, signs, shapes), states

  def estimate(words, context):
    if not sum(context.sizes):
      return plain.estimate(words, context)
    sums, factors, signs = of_words(words[0], context)
    shapes = [[size] for size in context.sizes]
    return rotated_ops.decode_table(sums, factors, signs, shapes)

  return plain._replace(
    begin=_compiled(plain.begin),
    send=(send,),
    decode=decode,
    estimate=estimate,
    compiled=False,
  )


_compiled = functools.partial(tf.function, jit_compile=True)


class _Numbers(NamedTuple):
  """What the kernels take beside gradients: numbers of blocks, and keys.

  Variables without elements have keys, and no blocks.

  Attributes:
    code: the functions of `thc`.
  """

  code: object

  def coding(self, context):
    """Scales of blocks and keys of variables, pairs."""
    scales = self.code.scales(tf.concat([n for n, _ in self.norms(context)], 0))
    starts = tf.constant(_starts(context))
    draws = random_bits.fold_in(context.key[:2][tf.newaxis], starts)
    return scales, (self.signs(context), draws)

  def of_sum(self, received, context):
    """Sums of entries, factors of blocks and keys of variables."""
    (message,) = self.code.messages(context.shapes)[0]
    factors = self.factors(context, 1.0 / context.num_workers)
    return received.sum(message), factors, self.signs(context)

  def of_words(self, words, context):
    """The same of one worker's words."""
    (message,) = self.code.messages(context.shapes)[0]
    sums = message.packing.unpack_flat(words, message.num_elements)
    return sums, self.factors(context, 1.0), self.signs(context)

  def factors(self, context, scale):
    """float32 [blocks]: what rotated sums are multiplied by."""
    pairs = self.norms(context)
    return tf.concat([self.code.way_back(*pair, scale) for pair in pairs], 0)

  def norms(self, context):
    """Pairs of the agreed norms and the elements, of variables with some."""
    norms = self.code.split_norms(context)
    pairs = zip(norms, context.sizes, strict=True)
    return [(norm, size) for norm, size in pairs if size]

  def signs(self, context):
    """uint32 [v, 2]: the key of each variable's rotation."""
    common = context.common_key
    return tf.stack(
      [self.code.key(common, start) for start in _starts(context)]
    )


def _starts(context):
  """The first element of each variable, as its random bits count it."""
  sizes = context.sizes
  return [context.start + sum(sizes[:i]) for i in range(len(sizes))]
