"""Elias-Fano code: sorted indices in a fixed number of words.

Source: see `stc`. For k indices below n, the lowest l = floor(log2(n / k)) bits
are stored as l planes of k bits. The upper bits of index number i form a
number h. They are stored in a string of k + floor((n - 1) / 2**l) + 1 bits, in
which bit h + i is 1.
"""

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import packing

_BITS = packing.unsigned(1)


def num_words(number: int, num_elements: int) -> int:
  """Returns the number of words that `pack` makes.

  Args:
    number: k, the number of indices, from 1 to num_elements.
    num_elements: n; the indices are below n.
  """
  low = _low_bits(number, num_elements) * _BITS.num_words(number)
  return low + _BITS.num_words(_string_bits(number, num_elements))


def pack(indices: tf.Tensor, num_elements: int) -> tf.Tensor:
  """Packs sorted indices.

  Args:
    indices: int32 [k], rising, from 0 to n - 1.
    num_elements: n.

  Returns:
    int32 [num_words(k, n)].
  """
  number = indices.shape[0]
  low_bits = _low_bits(number, num_elements)
  words = _pack_low(indices, low_bits)
  ones = tf.bitwise.right_shift(indices, low_bits) + tf.range(number)
  string = tf.zeros([_string_bits(number, num_elements)], tf.int32)
  string = tf.tensor_scatter_nd_update(
    string, ones[:, tf.newaxis], tf.ones([number], tf.int32)
  )
  return tf.concat([words, _BITS.pack_flat(string)], axis=0)


def unpack(words: tf.Tensor, number: int, num_elements: int) -> tf.Tensor:
  """Unpacks indices, the inverse of `pack`.

  Args:
    words: int32 [num_words(k, n)], any values.
    number: k.
    num_elements: n.

  Returns:
    int32 [k]. Other words than those of `pack` give any numbers >= 0.
  """
  low_bits = _low_bits(number, num_elements)
  count = _BITS.num_words(number)
  indices = _unpack_low(words[: low_bits * count], low_bits, number)
  size = _string_bits(number, num_elements)
  string = _BITS.unpack_flat(words[low_bits * count :], size)
  # The rank of each 1 bit. Zero bits and surplus 1 bits go past the end.
  rank = tf.cumsum(string) - 1
  rank = tf.where((string == 1) & (rank < number), rank, number)
  # Missing 1 bits get a position past all elements.
  ones = tf.fill([number + 1], size + number)
  ones = tf.tensor_scatter_nd_min(ones, rank[:, tf.newaxis], tf.range(size))
  high = ones[:number] - tf.range(number)
  high = tf.minimum(high, (num_elements >> low_bits) + 1)
  return tf.bitwise.bitwise_or(indices, tf.bitwise.left_shift(high, low_bits))


def check(name: str, words: np.ndarray, number: int, num_elements: int) -> None:
  """Raises ValueError unless NumPy int32 words are what `pack` makes."""
  indices = unpack(tf.constant(words), number, num_elements)
  rising = bool(tf.reduce_all(indices[1:] > indices[:-1]))
  if (
    not (rising and (int(indices[-1]) < num_elements))
    or (pack(indices, num_elements) != words).numpy().any()
  ):
    raise ValueError(
      f'{name}: expected {number} indices below {num_elements} in ascending '
      'order, received others. The payload is corrupted or from another codec. '
      'Send it again.'
    )


def _pack_low(indices: tf.Tensor, low_bits: int) -> tf.Tensor:
  """Packs all planes of low bits at once: int32 [planes * words of one]."""
  number = indices.shape[0]
  count = _BITS.num_words(number)
  shifts = np.arange(low_bits, dtype=np.int32)[:, np.newaxis]
  bits = tf.bitwise.bitwise_and(tf.bitwise.right_shift(indices, shifts), 1)
  places = _BITS.elements_per_word
  bits = tf.pad(bits, [[0, 0], [0, places * count - number]])
  return tf.reshape(_BITS.pack(tf.split(bits, places, axis=1)), [-1])


def _unpack_low(words: tf.Tensor, low_bits: int, number: int) -> tf.Tensor:
  """Unpacks what `_pack_low` makes: int32 [number]."""
  indices = tf.zeros([number], tf.int32)
  count = _BITS.num_words(number)
  shape = [_BITS.elements_per_word, low_bits, count]
  bits = tf.reshape(_BITS.unpack(words), shape)
  for bit, plane in enumerate(tf.unstack(bits, axis=1)):
    plane = tf.reshape(plane, [-1])[:number]
    indices = tf.bitwise.bitwise_or(indices, tf.bitwise.left_shift(plane, bit))
  return indices


def _low_bits(number: int, num_elements: int) -> int:
  return max(1, num_elements // max(1, number)).bit_length() - 1


def _string_bits(number: int, num_elements: int) -> int:
  return number + ((num_elements - 1) >> _low_bits(number, num_elements)) + 1
