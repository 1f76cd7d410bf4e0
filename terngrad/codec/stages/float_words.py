"""Packings of floats: the baselines for all codes."""

import abc

import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import wire

_MAX_FLOAT16 = 65504.0


def float32_words() -> wire.Packing:
  """Returns a packing of one float32 per word, bit for bit."""
  return Float32Words()


def float16_words() -> wire.Packing:
  """Returns a packing of two IEEE 754 binary16 per word.

  Values are rounded to nearest, ties to even. Magnitudes above 65504 become
  65504; those below 2**-24 may become 0. The sum over workers is float32.
  """
  return _Float16()


def bfloat16_words() -> wire.Packing:
  """Returns a packing of two bfloat16 per word.

  Values are rounded to nearest, ties to even. The range is that of float32, but
  magnitudes above 2**128 (1 - 2**-8) become that. The sum over workers is
  float32.
  """
  return _Bfloat16()


class Float32Words(wire.Packing):
  """One float32 per word, bit for bit."""

  name = 'float32_words'
  elements_per_word = 1
  domain = (contract.FLOAT, contract.WORDS)
  traits = contract.Traits(
    unbiased=True,
    lossless=True,
    additive=False,
    randomness='none',
    dense=True,
  )

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """Returns the bits of float32 [w], int32 [w]."""
    return tf.bitcast(planes[0], tf.int32)

  def unpack(self, words: tf.Tensor) -> wire.Planes:
    """Inverts `pack`."""
    return [tf.bitcast(words, tf.float32)]


class _TwoPerWord(wire.Packing):
  """A packing of 16-bit floats, the first in the lower half."""

  elements_per_word = 2
  domain = (contract.FLOAT, contract.WORDS)
  traits = contract.Traits(
    unbiased=False,
    lossless=False,
    additive=False,
    randomness='none',
    rounds=True,
    dense=True,
  )

  @abc.abstractmethod
  def to_bits(self, values: tf.Tensor) -> tf.Tensor:
    """Returns the uint32 bits, below 2**16, of float32 values."""

  @abc.abstractmethod
  def from_bits(self, bits: tf.Tensor) -> tf.Tensor:
    """Inverts `to_bits`."""

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    low, high = map(self.to_bits, planes)
    word = tf.bitwise.bitwise_or(low, tf.bitwise.left_shift(high, 16))
    return tf.bitcast(word, tf.int32)

  def unpack(self, words: tf.Tensor) -> wire.Planes:
    word = tf.bitcast(words, tf.uint32)
    high = tf.bitwise.right_shift(word, 16)
    low = tf.bitwise.bitwise_and(word, 0xFFFF)
    return [self.from_bits(low), self.from_bits(high)]


class _Bfloat16(_TwoPerWord):
  name = 'bfloat16_words'

  def to_bits(self, values: tf.Tensor) -> tf.Tensor:
    """Returns the upper 16 bits of float32, rounded."""
    bits = tf.bitcast(values, tf.uint32)

    # Adds half of the last kept bit, or slightly less if that bit is even.
    odd = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 16), 1)
    rounded = tf.bitwise.right_shift(bits + 0x7FFF + odd, 16)
    # If rounding gives infinity, one less is the largest finite number.
    infinite = tf.bitwise.bitwise_and(rounded, 0x7FFF) == 0x7F80
    return tf.where(infinite, rounded - 1, rounded)

  def from_bits(self, bits: tf.Tensor) -> tf.Tensor:
    return tf.bitcast(tf.bitwise.left_shift(bits, 16), tf.float32)


class _Float16(_TwoPerWord):
  name = 'float16_words'
  # Magnitudes above 65504 or below 2**-24 do not fit.
  traits = _TwoPerWord.traits._replace(preserves_scale=False)

  def to_bits(self, values: tf.Tensor) -> tf.Tensor:
    bounded = tf.clip_by_value(values, -_MAX_FLOAT16, _MAX_FLOAT16)
    half = tf.cast(bounded, tf.float16)
    return tf.cast(tf.bitcast(half, tf.uint16), tf.uint32)

  def from_bits(self, bits: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.bitcast(tf.cast(bits, tf.uint16), tf.float16), tf.float32)
