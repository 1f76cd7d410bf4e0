"""Codes of single variables: a payload is theirs, one after the other."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.methods import few_elements
from terngrad.codec.stages import chain
from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire
from terngrad.native import ops
from terngrad.native import sparse_ops

# Of codes that round to what is nearest, and of those that draw.
FIXED = contract.Traits(
  unbiased=False, lossless=False, additive=False, randomness='none'
)
DRAWN = contract.Traits(
  unbiased=True, lossless=False, additive=False, randomness='private'
)


class Native(NamedTuple):
  """What kernels do in place of a codec's functions; see `contract.Codec`."""

  encode_pieces: Callable
  decode_sum: Callable


def by_variable(
  packing, encode, traits=FIXED, compiled=True, elements=None, native=None
):
  """Makes a codec of how one variable is coded, by itself.

  Nothing is agreed on; probes are norms, which show what is not finite.

  Args:
    packing: `wire.CompositePacking`.
    encode: takes (float32 [n], n >= 1; draws), returns the variable's int32
      words. `draws()` is uint32 [n], random bits of each element.
    traits: see `contract.Traits`.
    compiled: see `contract.Codec`.
    elements: for words that tell of few elements, which are then added without
      a tensor of all: takes (int32 words, n), returns (int32 [k] indices,
      float32 [k]), index n where there is none; safe for any words. Those
      of a payload that an encoder made are each another.
    native: `Native`, the same to the bit; None where there are no kernels.

  Returns:
    A `contract.Codec` of scope VARIABLE.
  """

  def decode_sum(parts, shared, shapes, scale=1.0):
    sizes = method.sizes_of(shapes)
    if not sum(sizes):
      return [tf.zeros(shape) for shape in shapes]
    variables = _Variables(packing, elements, sizes)
    if elements:
      sums = variables.sum_elements(parts)
    else:
      sums = wire.sum_planes(variables, parts, sum(sizes))
    return chain.gradients_of(None, sums, shared, shapes, scale)

  codec = contract.Codec(
    name=packing.name,
    probe=statistics.norms,
    encode_pieces=functools.partial(_encode_pieces, encode),
    decode_sum=decode_sum,
    num_words=packing.num_words,
    traits=traits,
    stages=(packing,),
    compiled=compiled,
    scope=contract.VARIABLE,
    agrees=False,
  )
  if native is None:
    return codec
  own = native._asdict() | {'probe': ops.norms, 'compiled': False}
  return codec._replace(native=lambda: codec._replace(**own))


def native_elements(packing, encode, elements):
  """The `Native` of words that tell of few elements; see `by_variable`.

  Args:
    packing: `wire.CompositePacking`.
    encode: as for `by_variable`, with kernels.
    elements: as for `by_variable`.

  Returns:
    A `Native`.
  """

  def decode_sum(parts, shared, shapes, scale=1.0):
    del shared
    variables = _Variables(packing, elements, method.sizes_of(shapes))
    indices, values = variables.rows(parts)
    return sparse_ops.add_elements(indices, values, shapes, scale)

  return Native(functools.partial(_encode_pieces, encode), decode_sum)


def _encode_pieces(encode, pieces, sizes, own, shared, key):
  """`contract.Codec.encode_pieces` by a function that encodes a variable."""
  del own, shared  # each variable is coded alone
  whole = len(pieces) == len(sizes)
  variables = pieces if whole else tf.split(pieces[0], sizes)
  words, start = [], 0
  for values, size in zip(variables, sizes, strict=True):
    if size:
      words.append(encode(values, _draws(key, start, size)))
    start += size
  return tf.concat(words, axis=0) if words else tf.zeros([0], tf.int32)


def _draws(key, start, size):
  """A function that gives the random bits of a variable's elements."""

  def draws():
    positions = tf.bitcast(tf.range(start, start + size), tf.uint32)
    return random_bits.element_bits(key[:2], positions)

  return draws


class _Variables(NamedTuple):
  """The payloads of all variables of a bucket."""

  packing: wire.CompositePacking
  elements: object
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
    """float32 [num_elements], for `wire.sum_planes`."""
    del num_elements
    pairs = zip(self._split(words), self.sizes, strict=True)
    return tf.concat([self.packing.planes(p, n) for p, n in pairs if n], axis=0)

  def sum_elements(self, parts):
    """float32 [elements]: the sum in the order of the workers."""
    wire.check_length(self, parts, sum(self.sizes))
    return few_elements.sum_rows(parts, self._elements, sum(self.sizes))

  def rows(self, parts):
    """(int32 [n, k] indices in the bucket, float32 [n, k]) of all payloads."""
    wire.check_length(self, parts, sum(self.sizes))
    return few_elements.rows(parts, self._elements)

  def _elements(self, words):
    """(int32 [k] indices in the bucket, float32 [k]) of a payload."""
    if not sum(self.sizes):
      return tf.zeros([0], tf.int32), tf.zeros([0])
    indices, values, start = [], [], 0
    for own, size in zip(self._split(words), self.sizes, strict=True):
      if size:
        where, what = self.elements(own, size)
        nowhere = tf.constant(sum(self.sizes))
        indices.append(tf.where(where < size, where + start, nowhere))
        values.append(what)
      start += size
    return tf.concat(indices, axis=0), tf.concat(values, axis=0)

  def _split(self, words):
    return tf.split(words, [self.packing.num_words(n) for n in self.sizes])
