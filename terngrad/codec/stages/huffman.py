"""Huffman coding of five trits a symbol, in blocks that decode side by side.

Payload of n codes, s = ceil(n / 5) symbols, b = ceil(s / 512) blocks:

  word 0     bits 0 to 23: how many words are used; bits 24 to 31: q, the table
             in `huffman_tables`, or 0 for a payload that goes on with
             r = ceil(s / 4) words: word i is the sum of the symbols p * r + i
             times 243**p, 1.6 bits an element as in base3
  then       ceil(b / 4) words: byte i, from the lowest byte of the first word,
             is the number of words of block i
  then       block after block, each from a new word on: the code words of its
             symbols from the highest bit down, zeros in the rest

Symbol j is the number whose digit for 3**p is the code of element p * s + j,
plus 1. Elements past the end are 0. The encoder takes the table of the codes
at hand: one that were made for the mean of all gradients would not suit each.
"""

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import huffman_tables
from terngrad.codec.stages import wire

BLOCK = 512
_TRITS = huffman_tables.TRITS
_LONGEST = huffman_tables.LONGEST
_STEPS = huffman_tables.STEPS
# Symbols in a word without a code: 243**4 < 2**32.
_RAW = 4
# The symbol of five zeros.
_ZEROS = 121


def huffman243(density: float = 0.3175) -> wire.VariablePacking:
  """About 1.23 bits an element at that density, 1.6 at most.

  Args:
    density: the expected part of codes that are not 0, which sets only what
      `bits` foretells; that of Gaussian gradients clipped at 2.5 sigma.

  Returns:
    A `wire.VariablePacking` of codes in {-1, 0, 1}.
  """
  return _Huffman(density)


class _Huffman(wire.OfDensity):
  name = 'huffman243'
  elements_per_word = _TRITS

  def capacity(self, width: int) -> int:
    return 1 - (-width // _RAW)

  def used(self, first: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_and(first, 0xFFFFFF)

  def expected(self, num_elements: int) -> float:
    width = -(-num_elements // _TRITS)
    step = min(max(round(_STEPS * self._density), 1), _STEPS - 1)
    bits = huffman_tables.mean_length(self._density, step)
    # The last word of a block is half full on average.
    stream = width * bits / 32 + _blocks(width) * 31 / 64
    return min(_start(width) + stream, self.capacity(width))

  def pack_codes(self, planes: list[tf.Tensor]) -> tf.Tensor:
    width = planes[0].shape[0]
    # Digits are code + 1.
    symbols = sum((plane + 1) * 3**place for place, plane in enumerate(planes))
    capacity = self.capacity(width)
    words, used = _stream(symbols, _best_step(planes), capacity)
    return tf.where(used <= capacity, words, _raw(symbols, capacity))

  def unpack_codes(self, words: tf.Tensor, width: int) -> wire.Planes:

    step = _step(words[0])
    symbols = tf.cond(
      # Other steps than those of the tables decode to something.
      (step > 0) & (step < _STEPS),
      lambda: _decode(words, step, width),
      lambda: _from_raw(words, width),
    )
    return [symbols // 3**place % 3 - 1 for place in range(_TRITS)]

  def check(self, words: np.ndarray, width: int) -> None:
    step, used = int(_step(words[0])), int(words[0]) & 0xFFFFFF
    if step >= _STEPS:
      raise ValueError(
        f'huffman243: expected a table from 0 to {_STEPS - 1} in the first '
        f'word, received {step}. The payload was damaged or made by another '
        'codec.'
      )
    wanted, why = self.capacity(width), 'without a code'
    if step:
      wanted = _start(width) + int(tf.reduce_sum(_block_words(words, width)))
      why = f'by the lengths of its {_blocks(width)} blocks'
    if wanted != used:
      raise ValueError(
        f'huffman243: expected {wanted} words {why}, received a first word '
        f'that says {used}. The payload was damaged: send it again.'
      )


def _blocks(width: int) -> int:
  return -(-width // BLOCK)


def _start(width: int) -> int:
  """Words before the first block of `width` symbols."""
  return 1 - (-_blocks(width) // 4)


def _best_step(planes: list[tf.Tensor]) -> tf.Tensor:
  """q, int32 []: the nearest to 64 times the density of the codes."""
  size = len(planes) * planes[0].shape[0]
  nonzero = tf.add_n([tf.math.count_nonzero(plane) for plane in planes])
  step = (2 * _STEPS * nonzero + size) // (2 * size)
  return tf.cast(tf.clip_by_value(step, 1, _STEPS - 1), tf.int32)


def _raw(symbols: tf.Tensor, capacity: int) -> tf.Tensor:
  """The payload without a code, int32 [capacity]."""
  words = capacity - 1
  missing = _RAW * words - symbols.shape[0]
  padded = tf.pad(symbols, [[0, missing]], constant_values=_ZEROS)
  places = tf.unstack(tf.reshape(padded, [_RAW, words]))
  # Wraps around as uint32 would.
  body = sum(symbol * 243**p for p, symbol in enumerate(places))
  return tf.concat([[capacity], body], axis=0)


def _stream(
  symbols: tf.Tensor, step: tf.Tensor, capacity: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """The payload by table `step`, and how many words it would need.

  Args:
    symbols: int32 [s].
    step: int32 [], q.
    capacity: words of a payload.

  Returns:
    (int32 [capacity], of use where that is enough; int32 []).
  """
  width = symbols.shape[0]
  lengths, values = _code_words(symbols, step)
  end = tf.cumsum(lengths, axis=1)
  block_words = (end[:, -1] + 31) // 32
  first = _start(width) + tf.cumsum(block_words, exclusive=True)
  start = 32 * first[:, tf.newaxis] + end - lengths
  # A code word of at most 12 bits touches two words.
  place = start % 32
  left, right = 32 - place - lengths, place + lengths - 32
  value = tf.bitcast(values, tf.uint32)
  inside = tf.where(
    left >= 0,
    _left(value, tf.maximum(left, 0)),
    _right(value, tf.maximum(right, 0)),
  )
  outside = tf.where(right > 0, _left(value, 32 - tf.maximum(right, 1)), 0)
  index = tf.reshape(start // 32, [-1])
  index = tf.concat([index, index + 1], axis=0)
  stream = tf.math.unsorted_segment_sum(
    tf.bitcast(tf.reshape([inside, outside], [-1]), tf.int32),
    # What does not fit is dropped: base 3 is sent then.
    tf.where(index < capacity, index, -1),
    capacity,
  )
  used = first[-1] + block_words[-1]
  head = tf.concat(
    [[used + step * 2**24], wire.pack_bytes(block_words)], axis=0
  )
  return stream + tf.pad(head, [[0, capacity - head.shape[0]]]), used


def _code_words(
  symbols: tf.Tensor, step: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """Lengths and values of code words, int32 [blocks, 512], zeros at the end."""
  all_tables = huffman_tables.tables()
  # One gather for both. Not [step]: to compile that, XLA evaluates step's whole
  # history on zeros, in minutes.
  both = tf.gather(all_tables.values * 16 + all_tables.lengths, step)
  found = tf.gather(both, symbols)
  missing = -symbols.shape[0] % BLOCK
  found = tf.reshape(tf.pad(found, [[0, missing]]), [-1, BLOCK])
  return found % 16, found // 16


def _block_words(words: tf.Tensor, width: int) -> tf.Tensor:
  """The number of words of each block, of a payload's int32 words."""
  return wire.unpack_bytes(words[1 : _start(width)])[: _blocks(width)]


def _from_raw(words: tf.Tensor, width: int) -> tf.Tensor:
  body = tf.bitcast(words[1:], tf.uint32)
  places = [
    body // tf.constant(243**place, tf.uint32) % tf.constant(243, tf.uint32)
    for place in range(_RAW)
  ]
  return tf.bitcast(tf.concat(places, axis=0), tf.int32)[:width]


def _step(first: tf.Tensor) -> tf.Tensor:
  """q, 0 to 255."""
  return tf.bitwise.bitwise_and(tf.bitwise.right_shift(first, 24), 255)


def _decode(words: tf.Tensor, step: tf.Tensor, width: int) -> tf.Tensor:
  """int32 [s] symbols: all blocks side by side, a symbol at a time."""
  first = _start(width) + tf.cumsum(_block_words(words, width), exclusive=True)
  rounds = min(BLOCK, width)
  lookup = _lookup(step)
  unsigned = tf.bitcast(words, tf.uint32)
  last = words.shape[0] - 1

  def decode(
    i: tf.Tensor, place: tf.Tensor, symbols: tf.TensorArray
  ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
    # Both bounded, whatever the table of blocks says.
    word = tf.gather(unsigned, tf.minimum(place // 32, last))
    following = tf.gather(unsigned, tf.minimum(place // 32 + 1, last))
    shift = place % 32
    # A shift by 32 is undefined.
    below = _right(_right(following, 1), 31 - shift)
    window = tf.bitwise.bitwise_or(_left(word, shift), below)
    found = tf.gather(lookup, tf.bitcast(_right(window, 20), tf.int32))
    return i + 1, place + found % 16, symbols.write(i, found // 16)

  array = tf.TensorArray(tf.int32, size=rounds, element_shape=first.shape)
  _, _, array = tf.while_loop(
    lambda i, *_: i < rounds,
    decode,
    (tf.constant(0), 32 * first, array),
    maximum_iterations=rounds,
  )
  return tf.reshape(tf.transpose(array.stack()), [-1])[:width]


def _lookup(step: tf.Tensor) -> tf.Tensor:
  """int32 [4096]: 16 symbol + length of the code word that a number begins."""
  row = [tf.gather(field, step) for field in huffman_tables.tables()]
  _, _, ends, bases, symbols = row
  window = tf.range(2**_LONGEST)
  longer = tf.cast(window[:, tf.newaxis] >= ends, tf.int32)
  length = 1 + tf.reduce_sum(longer, axis=1)
  place = tf.bitwise.right_shift(window, _LONGEST - length)
  return 16 * tf.gather(symbols, place + tf.gather(bases, length - 1)) + length


def _left(words: tf.Tensor, shifts: tf.Tensor) -> tf.Tensor:
  return tf.bitwise.left_shift(words, tf.cast(shifts, tf.uint32))


def _right(words: tf.Tensor, shifts: tf.Tensor) -> tf.Tensor:
  return tf.bitwise.right_shift(words, tf.cast(shifts, tf.uint32))
