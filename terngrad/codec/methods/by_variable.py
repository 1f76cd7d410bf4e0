"""Codes of single variables: a payload is theirs, one after the other."""

from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import chain
from terngrad.codec.stages import contract
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire

_TRAITS = contract.Traits(
  unbiased=False, lossless=False, additive=False, randomness='none'
)


def by_variable(packing, encode, compiled=True):
  """Makes a codec of how one variable is coded, by itself and without draws.

  Nothing is agreed on; probes are norms, which show what is not finite.

  Args:
    packing: `wire.CompositePacking`.
    encode: takes float32 [n], n >= 1, returns the variable's int32 words.
    compiled: see `contract.Codec`.

  Returns:
    A `contract.Codec` of scope VARIABLE.
  """

  def encode_pieces(pieces, sizes, own, shared, key):
    del own, shared, key  # each variable is coded alone, and nothing drawn
    whole = len(pieces) == len(sizes)
    variables = pieces if whole else tf.split(pieces[0], sizes)
    words = [encode(v) for v, n in zip(variables, sizes, strict=True) if n]
    return tf.concat(words, axis=0) if words else tf.zeros([0], tf.int32)

  def decode_sum(parts, shared, shapes, scale=1.0):
    sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
    if not sum(sizes):
      return [tf.zeros(shape) for shape in shapes]
    sums = wire.sum_planes(_Variables(packing, sizes), parts, sum(sizes))
    return chain.gradients_of(None, sums, shared, shapes, scale)

  return contract.Codec(
    name=packing.name,
    probe=statistics.norms,
    encode_pieces=encode_pieces,
    decode_sum=decode_sum,
    num_words=packing.num_words,
    traits=_TRAITS,
    stages=(packing,),
    compiled=compiled,
    scope=contract.VARIABLE,
  )


class _Variables(NamedTuple):
  """What `wire.sum_planes` adds: all variables of a payload."""

  packing: object
  sizes: list

  @property
  def name(self):
    """That of the packing."""
    return self.packing.name

  def num_words(self, num_elements):
    """int32 numbers of a payload."""
    del num_elements
    return sum(map(self.packing.num_words, self.sizes))

  def planes(self, words, num_elements):
    """float32 [num_elements]."""
    del num_elements
    parts = tf.split(words, [self.packing.num_words(n) for n in self.sizes])
    pairs = zip(parts, self.sizes, strict=True)
    return tf.concat([self.packing.planes(p, n) for p, n in pairs if n], axis=0)
