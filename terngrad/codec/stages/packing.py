"""Packings of small integers to a fixed number of words.

Digit p of word j, of w words, holds the element `p * w + j` (see `planes`).
Words are int32 because TensorFlow's collectives support no narrower integers.
Digits are computed from the words as uint32, since 3**20 > 2**31. Words of 64
bits are two adjacent int32, read as uint64.
"""

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import wire

# Upper bound of the magnitudes of sums of codes.
MOST_SUMMED = 2**15


def two_bit() -> wire.Packing:
  """Returns a packing of {-1, 0, 1}: 16 codes per word, 2 bits each.

  The digit is code + 1, as in the 2017 encoder, which packed bytes instead of
  words.
  """
  return _TwoBit()


def base3() -> wire.Packing:
  """Returns a packing of {-1, 0, 1}: 20 codes per word, 1.6 bits each.

  Digit p is code + 1 and has the weight 3**p.
  """
  return _Base3('base3', 3)


def one_bit() -> wire.Packing:
  """Returns a packing of {-1, 1}: 32 signs per word.

  A bit of 0 encodes +1 and a bit of 1 encodes -1. There is no code 0: positions
  past the last element hold +1.
  """
  return _OneBit()


def digits(levels: int) -> wire.Packing:
  """Returns a packing of integers in [-levels, levels] to base 2 levels + 1.

  A word holds as many digits as fit.

  Args:
    levels: the largest magnitude, from 1 to 32767: 20 integers per word for 1,
      8 for 7 (4 bits each), 4 for 127.
  """
  if not 1 <= levels < MOST_SUMMED:
    raise ValueError(
      f'digits: expected levels from 1 to {MOST_SUMMED - 1}, received '
      f'{levels}. Use 7 for 4 bits per integer.'
    )
  return Positional(f'digits({levels})', 2 * levels + 1, levels=levels)


def unsigned(bits: int) -> wire.Packing:
  """Returns a packing of integers in [0, 2**bits), 32 / bits per word.

  The first integer is in the lowest bits of a word.

  Args:
    bits: of an integer: 1, 2, 4, 8 or 16.
  """
  if bits not in (1, 2, 4, 8, 16):
    raise ValueError(
      f'bits: expected one of 1, 2, 4, 8, 16, received {bits}. Use the next '
      'larger one.'
    )
  return Unsigned(bits)


def radix(num_workers: int, word_bits: int = 32) -> wire.Packing:
  """Returns a packing of {-1, 0, 1} whose words can be added.

  Digit p has the weight (2 N + 1)**p and a worker's digit is code + 1. The sum
  of the words of up to N workers has the digits sum of codes + number of
  workers, without carries. Any integer all-reduce therefore adds the gradients.
  For N = 8 a code takes 32 / 7 = 4.57 or 64 / 15 = 4.27 bits; the sum alone
  needs log2(17) = 4.09 bits.

  Args:
    num_workers: N, the largest number of workers that are added, from 1 to
      32767.
    word_bits: 32, or 64 for all-reduces that do not support int32, as on GPUs.

  Raises:
    ValueError: an argument is out of its range.
  """
  if not 1 <= num_workers < MOST_SUMMED:
    raise ValueError(
      'radix: expected a number of workers from 1 to 32767, received '
      f'{num_workers}. Set the number, as in packing=radix,workers=8.'
    )
  if word_bits not in (32, 64):
    raise ValueError(
      f'radix: expected word_bits 32 or 64, received {word_bits}. Use 64 '
      'if the all-reduce does not support int32.'
    )
  name = f'radix({num_workers}{", 64" if word_bits == 64 else ""})'
  packing = Positional(name, 2 * num_workers + 1, word_bits)
  packing.max_workers = num_workers
  return packing


def sums(num_workers: int) -> wire.Packing:
  """Returns a packing of sums of N workers' ternary codes, base 2 N + 1.

  The digits are those of a sum of `radix` words, computed from the sums.

  Args:
    num_workers: N, from 1 to 32767. Integers are in [-N, N].
  """
  packing = radix(num_workers)
  packing.name, packing.levels = f'sums({num_workers})', num_workers
  packing.max_workers = None
  return packing


class Unsigned(wire.Packing):
  """A packing of unsigned integers of a few bits; created by `unsigned`."""

  def __init__(self, bits: int) -> None:
    """Takes the bits of an integer."""
    self.name = f'unsigned({bits})'
    self.elements_per_word = 32 // bits
    self.levels = 2**bits - 1
    self._shifts = np.arange(0, 32, bits, dtype=np.uint32)
    self._mask = np.uint32(2**bits - 1)

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """Packs planes, the first in the lowest bits."""
    word, *others = planes
    shifts = self._shifts[1:].tolist()
    for shift, plane in zip(shifts, others, strict=True):
      moved = tf.bitwise.left_shift(plane, shift)
      word = tf.bitwise.bitwise_or(word, moved)
    return word

  def unpack(self, words: tf.Tensor) -> tf.Tensor:
    """Unpacks words to int32 [k, w]."""
    moved = tf.bitwise.right_shift(
      tf.bitcast(words, tf.uint32), self._shifts[:, np.newaxis]
    )
    return tf.bitcast(tf.bitwise.bitwise_and(moved, self._mask), tf.int32)


class _TwoBit(Unsigned):
  digits = (4, 16)

  def __init__(self) -> None:
    super().__init__(2)
    self.name, self.levels = 'two_bit', 1

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    return super().pack([plane + 1 for plane in planes])

  def unpack(self, words: tf.Tensor) -> wire.Planes:
    return super().unpack(words) - 1


class _OneBit(Unsigned):
  fill = 1
  domain = (contract.SIGNS, contract.WORDS)

  def __init__(self) -> None:
    super().__init__(1)
    self.name = 'one_bit'

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    return super().pack([tf.cast(plane < 0, tf.int32) for plane in planes])

  def unpack(self, words: tf.Tensor) -> wire.Planes:
    return 1 - 2 * super().unpack(words)


class Positional(wire.Packing):
  """A packing of as many digits of a base as fit; digit = code + levels."""

  levels: int

  def __init__(
    self, name: str, base: int, word_bits: int = 32, levels: int = 1
  ) -> None:
    """Computes how many digits fit in a word.

    Args:
      name: of the packing.
      base: of the digits, > levels.
      word_bits: 32 or 64.
      levels: the largest code, which is added to codes.
    """
    num_digits = max(p for p in range(1, 65) if base**p <= 2**word_bits)
    self.name, self.word_bits, self.levels = name, word_bits, levels
    self.elements_per_word, self._base = num_digits, base
    self._dtype = tf.uint32 if word_bits == 32 else tf.uint64
    if word_bits == 32 and levels == 1:
      self.digits = base, num_digits

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """Packs planes, the first as the lowest digit."""
    *rest, word = (
      tf.cast(tf.bitcast(plane + self.levels, tf.uint32), self._dtype)
      for plane in planes
    )
    for digit in reversed(rest):
      word = word * tf.constant(self._base, self._dtype) + digit
    return tf.reshape(tf.bitcast(word, tf.int32), [-1])

  def unpack(self, words: tf.Tensor) -> wire.Planes:
    """Unpacks words to k planes."""
    if self.word_bits == 64:
      words = tf.reshape(words, [-1, 2])
    word, base = tf.bitcast(words, self._dtype), self._base
    codes = []
    for index in range(self.elements_per_word):
      # Each digit divides the whole word. XLA then computes the digits in
      # parallel instead of storing a chain of quotients.
      quotient = word // tf.constant(base**index, self._dtype)
      above = quotient // tf.constant(base, self._dtype)
      digit = quotient - above * tf.constant(base, self._dtype)
      digit = tf.bitcast(tf.cast(digit, tf.uint32), tf.int32)
      codes.append(digit - self.levels)
    return codes


class _Base3(Positional):
  def unpack(self, words: tf.Tensor) -> wire.Planes:
    """Unpacks words to int32 [20, w].

    All digits use the same arithmetic with different constants, so that XLA
    makes one loop that writes each code once. Ten trits are a number below
    2**17, for any word. A float32 holds it exactly. With 0.5 added, division by
    a power of 3 has an error far too small to change the quotient.
    """
    word = tf.bitcast(words, tf.uint32)
    high = word // tf.constant(3**10, tf.uint32)
    low = word - high * tf.constant(3**10, tf.uint32)
    index = np.arange(20)[:, np.newaxis]
    trits = tf.bitcast(tf.where(index < 10, low, high), tf.int32)
    inverse = np.float32(1 / 3.0 ** (index % 10))
    quotient = tf.floor((tf.cast(trits, tf.float32) + 0.5) * inverse)
    above = tf.floor((quotient + 0.5) * np.float32(1 / 3))
    return tf.cast(quotient - 3.0 * above, tf.int32) - 1
