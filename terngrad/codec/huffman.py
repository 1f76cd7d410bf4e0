"""Huffman coding of five trits a symbol, in blocks that decode side by side.

Payload of n codes, s = ceil(n / 5) symbols, b = ceil(s / 512) blocks:

  word 0     bits 0 to 23: how many words are used; bits 24 to 31: q, the table
             in `huffman_tables`, or 0 for a payload that goes on with the
             ceil(n / 20) words of `packing.base3`
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

from terngrad.codec import bitmap
from terngrad.codec import contract
from terngrad.codec import huffman_tables
from terngrad.codec import packing
from terngrad.codec import validation

BLOCK = 512
_TRITS = huffman_tables.TRITS
_LONGEST = huffman_tables.LONGEST
_STEPS = huffman_tables.STEPS
_RAW = packing.base3()


def huffman243(density=0.3175):
  """About 1.23 bits an element at that density, 1.6 at most.

  Args:
    density: the expected part of codes that are not 0, which sets only what
      `bits` foretells; that of Gaussian gradients clipped at 2.5 sigma.

  Returns:
    A `contract.VariablePacking` of codes in {-1, 0, 1}.
  """
  return contract.VariablePacking(
    name='huffman243',
    pack=_pack,
    unpack=_unpack,
    capacity=_capacity,
    used=lambda first: tf.bitwise.bitwise_and(first, 0xFFFFFF),
    expected=lambda num_elements: _expected(num_elements, density),
    check=_check,
  )


def _capacity(num_elements):
  bitmap.check_size('huffman243', num_elements)
  return 1 + _RAW.num_words(num_elements)


def _expected(num_elements, density):
  step = min(max(round(_STEPS * density), 1), _STEPS - 1)
  bits = huffman_tables.mean_length(density, step)
  blocks = _blocks(num_elements)
  # The last word of a block is half full on average.
  stream = -(-num_elements // _TRITS) * bits / 32 + blocks * 31 / 64
  return min(_start(blocks) + stream, _capacity(num_elements))


def _blocks(num_elements):
  return -(-num_elements // (_TRITS * BLOCK))


def _start(blocks):
  """Words before the first block."""
  return 1 + -(-blocks // 4)


def _pack(planes):
  (codes,) = planes
  size = codes.shape[0]
  if not size:
    return tf.constant([1])
  raw_words = _RAW.num_words(size)
  nonzero = tf.math.count_nonzero(codes)
  step = (2 * _STEPS * nonzero + size) // (2 * size)
  step = tf.cast(tf.clip_by_value(step, 1, _STEPS - 1), tf.int32)
  words, used = _stream(codes, step)
  raw = _RAW.pack(_planes(codes, _RAW.elements_per_word, raw_words))
  raw = tf.concat([[1 + raw_words], raw], axis=0)
  return tf.where(used <= raw_words, words, raw)


def _stream(codes, step):
  """The payload by table `step`, and how many words it would need.

  Args:
    codes: int32 [n].
    step: int32 [], q.

  Returns:
    (int32 [capacity], of use where that is enough; int32 []).
  """
  size = codes.shape[0]
  capacity, blocks = _capacity(size), _blocks(size)
  symbols = _symbols(codes)
  lengths, values = _code_words(symbols, step)
  end = tf.cumsum(lengths, axis=1)
  block_words = (end[:, -1] + 31) // 32
  first = _start(blocks) + tf.cumsum(block_words, exclusive=True)
  start = 32 * first[:, tf.newaxis] + end - lengths
  # A code word of at most 12 bits touches two words.
  place = start % 32
  left, right = 32 - place - lengths, place + lengths - 32
  value = tf.bitcast(values, tf.uint32)
  inside = tf.where(
    left >= 0, _left(value, tf.maximum(left, 0)), _right(value, right)
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
  head = tf.concat([[used + step * 2**24], _table(block_words)], axis=0)
  return stream + tf.pad(head, [[0, capacity - head.shape[0]]]), used


def _symbols(codes):
  """int32 [s] of int32 [n] codes."""
  width = -(-codes.shape[0] // _TRITS)
  planes = _planes(codes, _TRITS, width)
  return sum((plane + 1) * 3**place for place, plane in enumerate(planes))


def _code_words(symbols, step):
  """Lengths and values of code words, int32 [blocks, 512], zeros at the end."""
  all_tables = huffman_tables.tables()
  # One gather for both.
  both = tf.constant(all_tables.values * 16 + all_tables.lengths)
  found = tf.gather(both[step], symbols)
  missing = -symbols.shape[0] % BLOCK
  found = tf.reshape(tf.pad(found, [[0, missing]]), [-1, BLOCK])
  return found % 16, found // 16


def _table(block_words):
  """int32 [b] numbers below 256 as int32 [ceil(b / 4)]."""
  missing = -block_words.shape[0] % 4
  quads = tf.reshape(tf.pad(block_words, [[0, missing]]), [-1, 4])
  return tf.reduce_sum(tf.bitwise.left_shift(quads, [0, 8, 16, 24]), axis=1)


def _block_words(words, blocks):
  """The inverse of `_table`, of a payload's int32 words."""
  quads = tf.bitcast(words[1 : _start(blocks), tf.newaxis], tf.uint32)
  quads = tf.bitwise.right_shift(quads, tf.constant([0, 8, 16, 24], tf.uint32))
  quads = tf.bitwise.bitwise_and(tf.bitcast(quads, tf.int32), 255)
  return tf.reshape(quads, [-1])[:blocks]


def _unpack(words, num_elements):
  if not num_elements:
    return tf.zeros([0], tf.int32)
  step = _step(words[0])

  def raw():
    return tf.concat(_RAW.unpack(words[1:]), axis=0)[:num_elements]

  def coded():
    return _decode(words, step, num_elements)

  # Other steps than those of the tables decode to something.
  return tf.cond((step > 0) & (step < _STEPS), coded, raw)


def _step(first):
  """q, 0 to 255."""
  return tf.bitwise.bitwise_and(tf.bitwise.right_shift(first, 24), 255)


def _decode(words, step, num_elements):
  """int32 [n] codes: all blocks side by side, a symbol at a time."""
  blocks = _blocks(num_elements)
  width = -(-num_elements // _TRITS)
  rounds = min(BLOCK, width)
  block_words = _block_words(words, blocks)
  first = _start(blocks) + tf.cumsum(block_words, exclusive=True)
  lookup = _lookup(step)
  unsigned = tf.bitcast(words, tf.uint32)
  last = words.shape[0] - 1

  def decode(i, place, symbols):
    # Both bounded, whatever the table of blocks says.
    word = tf.gather(unsigned, tf.minimum(place // 32, last))
    following = tf.gather(unsigned, tf.minimum(place // 32 + 1, last))
    shift = place % 32
    # A shift by 32 is undefined.
    below = _right(_right(following, 1), 31 - shift)
    window = tf.bitwise.bitwise_or(_left(word, shift), below)
    found = tf.gather(lookup, tf.bitcast(_right(window, 20), tf.int32))
    return i + 1, place + found % 16, symbols.write(i, found // 16)

  array = tf.TensorArray(tf.int32, size=rounds, element_shape=[blocks])
  _, _, array = tf.while_loop(
    lambda i, *_: i < rounds,
    decode,
    (tf.constant(0), 32 * first, array),
    maximum_iterations=rounds,
  )
  symbols = tf.reshape(tf.transpose(array.stack()), [-1])[:width]
  planes = [symbols // 3**place % 3 - 1 for place in range(_TRITS)]
  return tf.concat(planes, axis=0)[:num_elements]


def _lookup(step):
  """int32 [4096]: 16 symbol + length of the code word that a number begins."""
  row = [tf.constant(field)[step] for field in huffman_tables.tables()]
  _, _, ends, bases, symbols = row
  window = tf.range(2**_LONGEST)
  longer = tf.cast(window[:, tf.newaxis] >= ends, tf.int32)
  length = 1 + tf.reduce_sum(longer, axis=1)
  place = tf.bitwise.right_shift(window, _LONGEST - length)
  return 16 * tf.gather(symbols, place + tf.gather(bases, length - 1)) + length


def _check(words, num_elements):
  signed = words.view(np.int32)
  step, used = int(words[0] >> 24), int(words[0] & 0xFFFFFF)
  blocks = _blocks(num_elements)
  if step >= _STEPS:
    raise ValueError(
      f'huffman243: expected a table from 0 to {_STEPS - 1} in the first word, '
      f'received {step}. The payload was damaged or made by another codec.'
    )
  if not step:
    validation.check_length(
      'huffman243', words[:used], num_elements, words.size
    )
    validation.check_codes(_RAW, signed[1:], num_elements)
    return
  lengths = _block_words(tf.constant(signed), blocks).numpy()
  wanted = _start(blocks) + int(lengths.sum())
  if wanted != used:
    raise ValueError(
      f'huffman243: expected {wanted} words by the lengths of its {blocks} '
      f'blocks, received a first word that says {used}. The payload was '
      'damaged: send it again.'
    )
  codes = _unpack(tf.constant(signed), num_elements)
  # Also a code word that ends outside of its block, and blocks out of order.
  again, _ = _stream(codes, tf.constant(step))
  validation.check_same('huffman243', signed, again.numpy())


def _planes(codes, places, width):
  """`codes` with zeros at the end, as a list of int32 [width]."""
  padded = tf.pad(codes, [[0, places * width - codes.shape[0]]])
  return tf.unstack(tf.reshape(padded, [places, width]))


def _left(words, shifts):
  return tf.bitwise.left_shift(words, tf.cast(shifts, tf.uint32))


def _right(words, shifts):
  return tf.bitwise.right_shift(words, tf.cast(shifts, tf.uint32))
