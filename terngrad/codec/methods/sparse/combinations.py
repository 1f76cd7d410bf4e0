"""Enumerative code: sorted indices as the number of their combination.

Cover, Enumerative Source Encoding, IEEE Transactions on Information Theory 19
(1), 1973, https://doi.org/10.1109/TIT.1973.1054929, example 2. The k-element
subsets of n indices are numbered, and the number of a subset takes
log2(n choose k) bits: 472 bits for 64 indices below 4096, where Elias-Fano
takes 512. All rows have equal lengths, so nothing gives the length of a row.

Departure: for large n the lowest l bits of the indices are stored as they are,
and only the upper bits are numbered, as subsets with repetition. The table of
binomial coefficients is then 2**l times smaller. For 64 of 4096, l = 3 takes
477 bits and as many words as l = 0; `combination_layout` chooses l.

With upper bits d[0] <= d[1] <= ..., the number is the sum of
(i + d[i] choose i + 1). The words of a row are the number, lowest word first,
and then the lowest bits: bit b of index i is bit b k + i.
"""

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from terngrad.codec.methods.sparse import combination_layout
from terngrad.codec.stages import tracing

_LIMB = combination_layout.LIMB
_MASK = 2**_LIMB - 1


def pack(
  indices: tf.Tensor, layout: combination_layout.CombinationLayout
) -> tf.Tensor:
  """Packs rows of indices.

  Args:
    indices: int32 [r, k], each row rising.
    layout: of the rows.

  Returns:
    int32 [r, words].
  """
  number, low_bits = layout.number, layout.low_bits
  order = tf.range(number)
  upper = tf.bitwise.right_shift(indices, low_bits)
  if not low_bits:
    upper -= order
  words = []
  if layout.number_words:
    table = combination_layout.table(layout)
    terms = tf.gather(table, upper * number + order)
    words.append(_words_of(_carry(tf.reduce_sum(terms, axis=1))))
  if low_bits:
    shifts = tf.range(low_bits)[:, tf.newaxis]
    bits = tf.bitwise.right_shift(indices[:, tf.newaxis, :], shifts)
    bits = tf.reshape(tf.bitwise.bitwise_and(bits, 1), [-1, low_bits * number])
    missing = 32 * layout.low_words - low_bits * number
    bits = tf.reshape(
      tf.pad(bits, [[0, 0], [0, missing]]), [-1, layout.low_words, 32]
    )
    words.append(tf.reduce_sum(tf.bitwise.left_shift(bits, tf.range(32)), 2))
  return tf.concat(words, axis=1) if words else tf.zeros_like(indices[:, :0])


def unpack(
  words: tf.Tensor, layout: combination_layout.CombinationLayout
) -> tf.Tensor:
  """Unpacks rows of indices, the inverse of `pack`.

  Args:
    words: int32 [r, words], any values.
    layout: of the rows.

  Returns:
    int32 [r, k] from 0 to (largest + 1) 2**l - 1, or for l = 0 to n - 1. Words
    that `pack` does not make may give equal indices.
  """
  number, low_bits = layout.number, layout.low_bits
  upper = _upper_bits(layout)(words[:, : layout.number_words])
  upper.set_shape([words.shape[0], number])
  if not low_bits:
    return upper + tf.range(number)
  bits = words[:, layout.number_words :, tf.newaxis]
  bits = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, tf.range(32)), 1)
  bits = tf.reshape(bits, [-1, 32 * layout.low_words])[:, : low_bits * number]
  bits = tf.reshape(bits, [-1, low_bits, number])
  shifts = tf.range(low_bits)[:, tf.newaxis]
  low = tf.reduce_sum(tf.bitwise.left_shift(bits, shifts), axis=1)
  return tf.bitwise.bitwise_or(tf.bitwise.left_shift(upper, low_bits), low)


@functools.cache
def _upper_bits(
  layout: combination_layout.CombinationLayout,
) -> Callable[[tf.Tensor], tf.Tensor]:
  """Returns a function from int32 [r, number_words] to [r, k], the upper bits.

  It is traced, because thousands of small operations are slow in eager code.
  """
  number, limbs = layout.number, 2 * layout.number_words
  table = combination_layout.table(layout) if limbs else None
  # The sign of the highest limb that differs outweighs all lower ones.
  weights = 4.0 ** np.arange(limbs)

  def fits(candidate: tf.Tensor, i: tf.Tensor, rest: tf.Tensor) -> tf.Tensor:
    terms = tf.gather(table, candidate * number + i)
    signs = tf.cast(tf.sign(rest - terms), tf.float64)
    return tf.reduce_sum(signs * weights, axis=1) >= 0

  def step(
    i: tf.Tensor, bound: tf.Tensor, rest: tf.Tensor, found: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    # Binary search for the largest term that is not above the rest.
    value = tf.zeros_like(bound)
    for bit in reversed(range(layout.largest.bit_length())):
      candidate = tf.minimum(value + (1 << bit), bound)
      value = tf.where(fits(candidate, i, rest), candidate, value)
    rest = _carry(rest - tf.gather(table, value * number + i))
    found = tf.tensor_scatter_nd_update(found, [[i]], value[tf.newaxis])
    return i - 1, value, rest, found

  def unpack_upper(words: tf.Tensor) -> tf.Tensor:
    if not limbs:
      return tf.zeros([tf.shape(words)[0], number], tf.int32)
    halves = tf.stack([words, tf.bitwise.right_shift(words, _LIMB)], axis=2)
    rest = tf.bitwise.bitwise_and(tf.reshape(halves, [-1, limbs]), _MASK)
    bound = tf.zeros_like(rest[:, 0]) + layout.largest
    found = tf.zeros([number, tf.shape(words)[0]], tf.int32)
    start = tf.constant(number - 1), bound, rest, found
    *_, found = tf.while_loop(lambda i, *_: i >= 0, step, start)
    return tf.transpose(found)

  rows = tf.TensorSpec([None, layout.number_words], tf.int32)
  return tracing.function(unpack_upper, input_signature=[rows])


def _carry(limbs: tf.Tensor) -> tf.Tensor:
  """Brings limbs, int32 [r, n], to 0 to 2**16 - 1; drops the last carry."""
  carry = tf.zeros_like(limbs[:, 0])
  found = []
  for limb in tf.unstack(limbs, axis=1):
    limb += carry
    carry = tf.bitwise.right_shift(limb, _LIMB)
    found.append(tf.bitwise.bitwise_and(limb, _MASK))
  return tf.stack(found, axis=1)


def _words_of(limbs: tf.Tensor) -> tf.Tensor:
  """Joins pairs of limbs, int32 [r, 2 w], to int32 [r, w]."""
  high = tf.bitwise.left_shift(limbs[:, 1::2], _LIMB)
  return tf.bitwise.bitwise_or(limbs[:, ::2], high)
