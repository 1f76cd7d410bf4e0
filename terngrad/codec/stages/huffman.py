"""A Huffman packing of five trits per symbol, in blocks decoded in parallel.

Payload of n codes, s = ceil(n / 5) symbols, b = ceil(s / 512) blocks:

  word 0     bits 0 to 23: how many words are used; bits 24 to 31: q, the table
             in `huffman_tables`, or 0 for a payload without a Huffman code,
             which continues with r = ceil(s / 4) words: word i is the sum of
             the symbols p * r + i times 243**p, 1.6 bits per element as base3
  then       ceil(b / 4) words: byte i, from the lowest byte of the first word,
             is the number of words of block i
  then       the blocks, each from a new word on: the code words of its symbols
             from the highest bit down, zeros in the rest

Symbol j is the number whose digit for 3**p is the code of element p * s + j,
plus 1. Elements past the end are 0. The encoder chooses the table by the
density of this payload, because densities differ between gradients.
"""

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import huffman_tables
from terngrad.codec.stages import tracing
from terngrad.codec.stages import wire

BLOCK = 512
_TRITS = huffman_tables.TRITS
_LONGEST = huffman_tables.LONGEST
_STEPS = huffman_tables.STEPS
# Symbols per word without a Huffman code: 243**4 < 2**32.
_RAW = 4
# The symbol of five zeros.
_ZEROS = 121


def huffman243(density: float = 0.3175) -> wire.VariablePacking:
  """Returns a packing of {-1, 0, 1} to about 1.23 bits per element.

  That is the size at the default density; the largest size is 1.6 bits.

  Args:
    density: expected fraction of nonzero codes, used only for the estimate of
      `bits`. The default is for Gaussian gradients clipped at 2.5 sigma.
  """
  return _Huffman(density)


class _Huffman(wire.DensityPacking):
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
    symbols = sum((plane + 1) * 3**digit for digit, plane in enumerate(planes))
    capacity = self.capacity(width)
    words, used = _stream(symbols, _best_step(planes), capacity)
    return tf.where(used <= capacity, words, _raw(symbols, capacity))

  def unpack_codes(self, words: tf.Tensor, width: int) -> wire.Planes:
    step = _step(words[0])
    symbols = tf.cond(
      # Invalid values of q, from corrupted payloads, decode without a table.
      (step > 0) & (step < _STEPS),
      lambda: _decode(words, step, width),
      lambda: _from_raw(words, width),
    )
    return [symbols // 3**digit % 3 - 1 for digit in range(_TRITS)]

  def check(self, words: np.ndarray, width: int) -> None:
    step, used = int(_step(words[0])), int(words[0]) & 0xFFFFFF
    if step >= _STEPS:
      raise ValueError(
        f'huffman243: expected a table from 0 to {_STEPS - 1} in the first '
        f'word, received {step}. The payload is corrupted or from another '
        'codec. Send it again.'
      )
    expected, reason = self.capacity(width), 'without a Huffman code'
    if step:
      expected = _start(width) + int(tf.reduce_sum(_block_words(words, width)))
      reason = f'for the lengths of its {_blocks(width)} blocks'
    if expected != used:
      raise ValueError(
        f'huffman243: expected {expected} words {reason}, received {used} in '
        'the first word. The payload is corrupted. Send it again.'
      )


def _blocks(width: int) -> int:
  return -(-width // BLOCK)


def _start(width: int) -> int:
  """Returns the number of words before the first block of `width` symbols."""
  return 1 - (-_blocks(width) // 4)


def _best_step(planes: list[tf.Tensor]) -> tf.Tensor:
  """Returns q, int32 []: 64 times the density of the codes, rounded."""
  size = len(planes) * planes[0].shape[0]
  nonzero = tf.add_n([tf.math.count_nonzero(plane) for plane in planes])
  step = (2 * _STEPS * nonzero + size) // (2 * size)
  return tf.cast(tf.clip_by_value(step, 1, _STEPS - 1), tf.int32)


def _raw(symbols: tf.Tensor, capacity: int) -> tf.Tensor:
  """Returns the payload without a Huffman code, int32 [capacity]."""
  words = capacity - 1
  missing = _RAW * words - symbols.shape[0]
  padded = tf.pad(symbols, [[0, missing]], constant_values=_ZEROS)
  digits = tf.unstack(tf.reshape(padded, [_RAW, words]))
  # Wraps around as uint32 does.
  body = sum(symbol * 243**p for p, symbol in enumerate(digits))
  return tf.concat([[capacity], body], axis=0)


def _stream(
  symbols: tf.Tensor, step: tf.Tensor, capacity: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns the payload with table `step`, and how many words it needs.

  Args:
    symbols: int32 [s].
    step: int32 [], q.
    capacity: words of a payload.

  Returns:
    (int32 [capacity], valid if the second value is at most `capacity`; int32
    []).
  """
  width = symbols.shape[0]
  lengths, values = _code_words(symbols, step)
  end = tf.cumsum(lengths, axis=1)
  block_words = (end[:, -1] + 31) // 32
  first = _start(width) + tf.cumsum(block_words, exclusive=True)
  start = 32 * first[:, tf.newaxis] + end - lengths
  # A code word of at most 12 bits is in at most two words.
  offset = start % 32
  left, right = 32 - offset - lengths, offset + lengths - 32
  value = tf.bitcast(values, tf.uint32)
  in_word = tf.where(
    left >= 0,
    _left(value, tf.maximum(left, 0)),
    _right(value, tf.maximum(right, 0)),
  )
  in_next_word = tf.where(right > 0, _left(value, 32 - tf.maximum(right, 1)), 0)
  index = tf.reshape(start // 32, [-1])
  index = tf.concat([index, index + 1], axis=0)
  stream = tf.math.unsorted_segment_sum(
    tf.bitcast(tf.reshape([in_word, in_next_word], [-1]), tf.int32),
    # Words that do not fit are dropped; the payload is then sent by `_raw`.
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
  """Returns lengths and values of code words, int32 [blocks, 512], 0-padded."""
  all_tables = huffman_tables.tables()
  # One gather for both. Indexing with [step] would let XLA evaluate the whole
  # computation of `step` on zeros at compile time, which takes minutes.
  both = tf.gather(all_tables.values * 16 + all_tables.lengths, step)
  found = tf.gather(both, symbols)
  missing = -symbols.shape[0] % BLOCK
  found = tf.reshape(tf.pad(found, [[0, missing]]), [-1, BLOCK])
  return found % 16, found // 16


def _block_words(words: tf.Tensor, width: int) -> tf.Tensor:
  """Returns the number of words of each block of a payload."""
  return wire.unpack_bytes(words[1 : _start(width)])[: _blocks(width)]


def _from_raw(words: tf.Tensor, width: int) -> tf.Tensor:
  body = tf.bitcast(words[1:], tf.uint32)
  digits = [
    body // tf.constant(243**digit, tf.uint32) % tf.constant(243, tf.uint32)
    for digit in range(_RAW)
  ]
  return tf.bitcast(tf.concat(digits, axis=0), tf.int32)[:width]


def _step(first: tf.Tensor) -> tf.Tensor:
  """Returns q, from 0 to 255."""
  return tf.bitwise.bitwise_and(tf.bitwise.right_shift(first, 24), 255)


def _decode(words: tf.Tensor, step: tf.Tensor, width: int) -> tf.Tensor:
  """Decodes int32 [s] symbols: all blocks in parallel, one symbol per round."""
  first = _start(width) + tf.cumsum(_block_words(words, width), exclusive=True)
  # Eagerly, the operations of all rounds take seconds.
  in_rounds = _rounds_in_graph if tf.executing_eagerly() else _rounds
  last, rounds = words.shape[0] - 1, min(BLOCK, width)
  symbols = in_rounds(words, last, first, _lookup(step), rounds)
  return tf.reshape(tf.transpose(symbols), [-1])[:width]


def _rounds(
  words: tf.Tensor,
  last: tf.Tensor | int,
  first: tf.Tensor,
  lookup: tf.Tensor,
  rounds: tf.Tensor | int,
) -> tf.Tensor:
  """Decodes the blocks that begin at words `first`: int32 [rounds, blocks]."""
  unsigned = tf.bitcast(words, tf.uint32)

  def decode(
    i: tf.Tensor, offset: tf.Tensor, symbols: tf.TensorArray
  ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
    # Both indices are bounded, even if the table of blocks is corrupted.
    word = tf.gather(unsigned, tf.minimum(offset // 32, last))
    following = tf.gather(unsigned, tf.minimum(offset // 32 + 1, last))
    shift = offset % 32
    # A shift by 32 is undefined.
    below = _right(_right(following, 1), 31 - shift)
    window = tf.bitwise.bitwise_or(_left(word, shift), below)
    found = tf.gather(lookup, tf.bitcast(_right(window, 20), tf.int32))
    return i + 1, offset + found % 16, symbols.write(i, found // 16)

  array = tf.TensorArray(tf.int32, size=rounds, element_shape=first.shape)
  _, _, array = tf.while_loop(
    lambda i, *_: i < rounds,
    decode,
    (tf.constant(0), 32 * first, array),
    maximum_iterations=rounds,
  )
  return array.stack()


_rounds_in_graph = tracing.function(
  _rounds,
  input_signature=[
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([], tf.int32),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([], tf.int32),
  ],
)


def _lookup(step: tf.Tensor) -> tf.Tensor:
  """Returns int32 [4096]: 16 * symbol + length of the code word.

  The index is a 12-bit number that begins with the code word.
  """
  row = [tf.gather(field, step) for field in huffman_tables.tables()]
  _, _, ends, bases, symbols = row
  window = tf.range(2**_LONGEST)
  longer = tf.cast(window[:, tf.newaxis] >= ends, tf.int32)
  length = 1 + tf.reduce_sum(longer, axis=1)
  prefix = tf.bitwise.right_shift(window, _LONGEST - length)
  return 16 * tf.gather(symbols, prefix + tf.gather(bases, length - 1)) + length


def _left(words: tf.Tensor, shifts: tf.Tensor) -> tf.Tensor:
  return tf.bitwise.left_shift(words, tf.cast(shifts, tf.uint32))


def _right(words: tf.Tensor, shifts: tf.Tensor) -> tf.Tensor:
  return tf.bitwise.right_shift(words, tf.cast(shifts, tf.uint32))
