"""A packing of one bit per element, and a sign for each nonzero code.

Payload of n codes, w = ceil(n / 32):

  word 0           how many words are used
  words 1 to w     bit p of word 1 + j is 1 if element p * w + j is not 0
  from word 1 + w  the signs of the nonzero codes, 1 for -1: those of word 1
                   from its lowest bit up, then those of word 2 and so on, 32
                   per word from its lowest bit up
"""

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import wire

_WORD_BITS = 32


def bitmap_sign(density: float = 0.3175) -> wire.VariablePacking:
  """Returns a packing of {-1, 0, 1} to 1 + density bits per element.

  The wire or file must support payloads of variable length.

  Args:
    density: expected fraction of nonzero codes, used only for the estimate of
      `bits`. The default is for Gaussian gradients clipped at 2.5 sigma.
  """
  return _BitmapSign(density)


class _BitmapSign(wire.DensityPacking):
  name = 'bitmap_sign'
  elements_per_word = _WORD_BITS

  def capacity(self, width: int) -> int:
    return 1 + 2 * width

  def expected(self, num_elements: int) -> float:
    # The last word of signs is half full on average.
    signs = num_elements * self._density / 32 + 31 / 64 if num_elements else 0
    return 1 - (-num_elements // _WORD_BITS) + signs

  def pack_codes(self, planes: list[tf.Tensor]) -> tf.Tensor:
    codes = tf.stack(planes)
    width = codes.shape[1]
    nonzero = tf.cast(codes != 0, tf.int32)
    rank = tf.cumsum(nonzero, axis=0, exclusive=True)
    counts = tf.reduce_sum(nonzero, axis=0)
    signs = tf.reduce_sum(_left(_uint32(codes < 0), _uint32(rank)), axis=0)
    # The signs of a word, at most 32, are in at most two words of the payload.
    start = tf.cumsum(counts, exclusive=True)
    shift = tf.bitcast(start % 32, tf.uint32)
    # A shift by 32 is undefined.
    above = _right(_right(signs, tf.ones_like(shift)), 31 - shift)
    index = start // 32
    stream = tf.math.unsorted_segment_sum(
      tf.bitcast(tf.concat([_left(signs, shift), above], axis=0), tf.int32),
      # Bits past the end are 0.
      tf.concat([index, tf.minimum(index + 1, width - 1)], axis=0),
      width,
    )
    bitmap = tf.reduce_sum(_left(_uint32(nonzero), _bit_indices()), axis=0)
    used = 1 + width + (tf.reduce_sum(counts) + 31) // 32
    return tf.concat([[used], tf.bitcast(bitmap, tf.int32), stream], axis=0)

  def unpack_codes(self, words: tf.Tensor, width: int) -> wire.Planes:
    words = tf.bitcast(words, tf.uint32)
    bitmap, stream = words[1 : 1 + width], words[1 + width :]
    nonzero = _bit(bitmap[tf.newaxis], _bit_indices())
    rank = tf.cumsum(nonzero, axis=0, exclusive=True)
    # At most 32 bits per word of the bitmap, so never past the stream's end.
    start = tf.cumsum(tf.reduce_sum(nonzero, axis=0), exclusive=True)
    shift = tf.bitcast(start % 32, tf.uint32)
    low = tf.gather(stream, start // 32)
    high = tf.gather(stream, tf.minimum(start // 32 + 1, width - 1))
    above = _left(_left(high, tf.ones_like(shift)), 31 - shift)
    signs = tf.bitwise.bitwise_or(_right(low, shift), above)
    return tf.unstack(nonzero * (1 - 2 * _bit(signs, _uint32(rank))))

  def check(self, words: np.ndarray, width: int) -> None:
    count = int(np.unpackbits(words[1 : 1 + width].view(np.uint8)).sum())
    used = 1 + width + -(-count // 32)
    if words[0] != used:
      raise ValueError(
        f'bitmap_sign: expected {used} words for {count} nonzero codes, '
        f'received a first word of {words[0]}. The payload is corrupted. Send '
        'it again.'
      )


def _bit_indices() -> tf.Tensor:
  return _uint32(tf.range(_WORD_BITS))[:, tf.newaxis]


def _bit(words: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
  """Returns the bits of uint32 `words` at the indices `indices`, as int32."""
  return tf.bitwise.bitwise_and(tf.bitcast(_right(words, indices), tf.int32), 1)


def _left(words: tf.Tensor, shifts: tf.Tensor) -> tf.Tensor:
  return tf.bitwise.left_shift(words, shifts)


def _right(words: tf.Tensor, shifts: tf.Tensor) -> tf.Tensor:
  return tf.bitwise.right_shift(words, shifts)


def _uint32(values: tf.Tensor) -> tf.Tensor:
  return tf.cast(values, tf.uint32)
