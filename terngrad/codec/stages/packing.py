"""Fixed-length packings of small integers into words.

Element `p * w + j` of a gradient of `w` words stands at place `p` of word `j`
(see `planes`). Words are int32 because TensorFlow's collectives carry no
narrower integers; digits are taken on the uint32 view, since 3**20 > 2**31,
or, where words have 64 bits, on the uint64 view of two neighbours.
"""

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import wire

# Sums of codes have magnitudes below this.
MOST_SUMMED = 2**15


def two_bit() -> wire.Packing:
  """16 codes a word, 2 bits each: 0 for -1, 1 for 0, 2 for +1.

  The digits of the 2017 code's encoder, in words instead of bytes.

  Returns:
    A `wire.Packing` of codes in {-1, 0, 1}.
  """
  return _TwoBit()


def base3() -> wire.Packing:
  """20 codes a word, 1.6 bits each: place p weighs 3**p, digit = code + 1.

  Returns:
    A `wire.Packing` of codes in {-1, 0, 1}.
  """
  return _Base3('base3', 3)


def one_bit() -> wire.Packing:
  """32 signs a word: bit 0 for +1, 1 for -1.

  There is no code 0: the places past the last element hold +1.

  Returns:
    A `wire.Packing` of codes in {-1, 1}.
  """
  return _OneBit()


def digits(levels: int) -> wire.Packing:
  """As many integers a word as fit as digits of base 2 levels + 1.

  Args:
    levels: the largest magnitude, from 1 to 32767: 20 integers a word for 1, 8
      for 7 (4 bits each), 4 for 127.

  Returns:
    A `wire.Packing` of integers in [-levels, levels].
  """
  if not 1 <= levels < MOST_SUMMED:
    raise ValueError(
      f'digits: expected levels from 1 to {MOST_SUMMED - 1}, received '
      f'{levels}. Use 7 for 4 bits an integer.'
    )
  return Positional(f'digits({levels})', 2 * levels + 1, levels=levels)


def unsigned(bits: int) -> wire.Packing:
  """32 / bits integers a word, the first in the lowest bits.

  Args:
    bits: of an integer: 1, 2, 4, 8 or 16.

  Returns:
    A `wire.Packing` of integers in [0, 2**bits).
  """
  if bits not in (1, 2, 4, 8, 16):
    raise ValueError(
      f'bits: expected one of 1, 2, 4, 8, 16, received {bits}. Use the next '
      'larger one.'
    )
  return Unsigned(bits)


def radix(num_workers: int, word_bits: int = 32) -> wire.Packing:
  """Digits with room for the sum of all workers' codes.

  Place p weighs (2 N + 1)**p and a worker's digit is code + 1, so that plain
  integer sums of the words of up to N workers have the digits sum + workers
  and never carry: any all-reduce of integers adds the gradients. For N = 8 a
  code costs 32 / 7 = 4.57 or 64 / 15 = 4.27 bits; the sum alone holds
  log2(17) = 4.09.

  Args:
    num_workers: N, the most workers that are added, >= 1.
    word_bits: 32, or 64 for all-reduces that take no int32, as those of GPUs.

  Returns:
    A `wire.Packing` of codes in {-1, 0, 1}.

  Raises:
    ValueError: an argument is out of its range.
  """
  if not 1 <= num_workers < MOST_SUMMED:
    raise ValueError(
      'radix: expected a number of workers from 1 to 32767, received '
      f'{num_workers}. Say how many are added, as in packing=radix,workers=8.'
    )
  if word_bits not in (32, 64):
    raise ValueError(
      f'radix: expected word_bits 32 or 64, received {word_bits}. Use 64 '
      'where an all-reduce takes no int32.'
    )
  name = f'radix({num_workers}{", 64" if word_bits == 64 else ""})'
  packing = Positional(name, 2 * num_workers + 1, word_bits)
  packing.max_workers = num_workers
  return packing


def sums(num_workers: int) -> wire.Packing:
  """Sums of the ternary codes of up to N workers: digits of base 2 N + 1.

  What `radix` words add up to, but made from the sums themselves.

  Args:
    num_workers: N, see `radix`.

  Returns:
    A `wire.Packing` of integers in [-N, N].
  """
  packing = radix(num_workers)
  packing.name, packing.levels = f'sums({num_workers})', num_workers
  packing.max_workers = None
  return packing


class Unsigned(wire.Packing):
  """See `unsigned`."""

  def __init__(self, bits: int) -> None:
    """Takes the bits of an integer."""
    self.name = f'unsigned({bits})'
    self.elements_per_word = 32 // bits
    self.levels = 2**bits - 1
    self._shifts = np.arange(0, 32, bits, dtype=np.uint32)
    self._mask = np.uint32(2**bits - 1)

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """See `wire.Packing`."""
    word = tf.zeros_like(planes[0], tf.uint32)
    for shift, plane in zip(self._shifts, planes, strict=True):
      moved = tf.bitwise.left_shift(tf.bitcast(plane, tf.uint32), shift)
      word = tf.bitwise.bitwise_or(word, moved)
    return tf.bitcast(word, tf.int32)

  def unpack(self, words: tf.Tensor) -> tf.Tensor:
    """See `wire.Packing`."""
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
  """As many digits of a base as fit in a word; digit = code + levels."""

  levels: int

  def __init__(
    self, name: str, base: int, word_bits: int = 32, levels: int = 1
  ) -> None:
    """Makes the packing.

    Args:
      name: see `wire.Packing`.
      base: of the digits, > levels.
      word_bits: see `wire.Packing`.
      levels: see `wire.Packing`.
    """
    places = max(p for p in range(1, 65) if base**p <= 2**word_bits)
    self.name, self.word_bits, self.levels = name, word_bits, levels
    self.elements_per_word, self._base = places, base
    self._dtype = tf.uint32 if word_bits == 32 else tf.uint64
    if word_bits == 32 and levels == 1:
      self.digits = base, places

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """See `wire.Packing`."""
    *rest, word = (
      tf.cast(tf.bitcast(plane + self.levels, tf.uint32), self._dtype)
      for plane in planes
    )
    for digit in reversed(rest):
      word = word * tf.constant(self._base, self._dtype) + digit
    return tf.reshape(tf.bitcast(word, tf.int32), [-1])

  def unpack(self, words: tf.Tensor) -> wire.Planes:
    """See `wire.Packing`."""
    if self.word_bits == 64:
      words = tf.reshape(words, [-1, 2])
    word, base = tf.bitcast(words, self._dtype), self._base
    codes = []
    for place in range(self.elements_per_word):
      # Each place divides the word itself: XLA then computes the places side
      # by side instead of keeping a chain of quotients.
      quotient = word // tf.constant(base**place, self._dtype)
      above = quotient // tf.constant(base, self._dtype)
      digit = quotient - above * tf.constant(base, self._dtype)
      digit = tf.bitcast(tf.cast(digit, tf.uint32), tf.int32)
      codes.append(digit - self.levels)
    return codes


class _Base3(Positional):
  def unpack(self, words: tf.Tensor) -> wire.Planes:
    """The planes, int32 [20, w].

    All places by the same arithmetic with a row of constants, so that XLA makes
    one loop of it that writes each code once. Ten trits are a number below
    2**17, of any word; a float32 holds it and, half of one added, divides it by
    a power of 3 with an error far below what would change the quotient.
    """
    word = tf.bitcast(words, tf.uint32)
    high = word // tf.constant(3**10, tf.uint32)
    low = word - high * tf.constant(3**10, tf.uint32)
    place = np.arange(20)[:, np.newaxis]
    trits = tf.bitcast(tf.where(place < 10, low, high), tf.int32)
    inverse = np.float32(1 / 3.0 ** (place % 10))
    quotient = tf.floor((tf.cast(trits, tf.float32) + 0.5) * inverse)
    above = tf.floor((quotient + 0.5) * np.float32(1 / 3))
    return tf.cast(quotient - 3.0 * above, tf.int32) - 1
