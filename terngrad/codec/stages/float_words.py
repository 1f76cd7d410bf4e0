"""Floats on the wire: the baselines that every code is compared with."""

import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import wire

_MAX_FLOAT16 = 65504.0


def float32_words():
  """One float32 a word, to the bit.

  Returns:
    A `wire.Packing` of floats.
  """

  def pack(planes):
    return tf.bitcast(planes[0], tf.int32)

  def unpack(words):
    return [tf.bitcast(words, tf.float32)]

  return wire.Packing(
    name='float32_words',
    elements_per_word=1,
    pack=pack,
    unpack=unpack,
    domain=(contract.FLOAT, contract.WORDS),
    traits=contract.Traits(
      unbiased=True, lossless=True, additive=False, randomness='none'
    ),
  )


def float16_words():
  """Two IEEE 754 binary16 a word, rounded to nearest, ties to even.

  Magnitudes above 65504 become 65504; those below 2**-24 may become 0. The
  sum over workers runs in float32.

  Returns:
    A `wire.Packing` of floats.
  """
  return _two_a_word('float16_words', _half_bits, _from_half_bits)


def bfloat16_words():
  """Two bfloat16 a word, rounded to nearest, ties to even.

  The range is that of float32, but magnitudes above 2**128 (1 - 2**-8) become
  that. The sum over workers runs in float32.

  Returns:
    A `wire.Packing` of floats.
  """
  return _two_a_word('bfloat16_words', _upper_half, _from_upper_half)


def _two_a_word(name, to_bits, from_bits):
  """The `wire.Packing` of floats of 16 bits, the first in the lower half.

  Args:
    name: see `wire.Packing`.
    to_bits: takes float32, returns uint32 below 2**16.
    from_bits: the inverse.
  """

  def pack(planes):
    low, high = map(to_bits, planes)
    word = tf.bitwise.bitwise_or(
      low, tf.bitwise.left_shift(high, tf.constant(16, tf.uint32))
    )
    return tf.bitcast(word, tf.int32)

  def unpack(words):
    word = tf.bitcast(words, tf.uint32)
    high = tf.bitwise.right_shift(word, tf.constant(16, tf.uint32))
    low = tf.bitwise.bitwise_and(word, tf.constant(0xFFFF, tf.uint32))
    return [from_bits(low), from_bits(high)]

  return wire.Packing(
    name=name,
    elements_per_word=2,
    pack=pack,
    unpack=unpack,
    domain=(contract.FLOAT, contract.WORDS),
    traits=contract.Traits(
      unbiased=False, lossless=False, additive=False, randomness='none'
    ),
  )


def _upper_half(values):
  """uint32 below 2**16: the upper bits of float32, rounded."""
  bits = tf.bitcast(values, tf.uint32)
  sixteen = tf.constant(16, tf.uint32)
  # Half of what is cut off, less where the last bit that stays is even.
  odd = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, sixteen), 1)
  rounded = tf.bitwise.right_shift(bits + 0x7FFF + odd, sixteen)
  # Rounded up to infinity: one less is the largest finite number.
  infinite = tf.bitwise.bitwise_and(rounded, 0x7FFF) == 0x7F80
  return tf.where(infinite, rounded - 1, rounded)


def _from_upper_half(bits):
  return tf.bitcast(
    tf.bitwise.left_shift(bits, tf.constant(16, tf.uint32)), tf.float32
  )


def _half_bits(values):
  bounded = tf.clip_by_value(values, -_MAX_FLOAT16, _MAX_FLOAT16)
  half = tf.cast(bounded, tf.float16)
  return tf.cast(tf.bitcast(half, tf.uint16), tf.uint32)


def _from_half_bits(bits):
  half = tf.bitcast(tf.cast(bits, tf.uint16), tf.float16)
  return tf.cast(half, tf.float32)
