"""Payloads of the largest coefficients of each block of a variable.

A variable's words are the indices of the coefficients in their blocks, a fixed
number of bits each and block after block, and then the float32 coefficients. If
all coefficients of a block are sent, there are no indices.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.methods.sparse import topk
from terngrad.codec.methods.transforms import dct
from terngrad.codec.stages import packing

_BITS = packing.unsigned(1)


class BlockLayout(NamedTuple):
  """Sizes of a variable's payload.

  Attributes:
    blocks: number of blocks, 0 for an empty variable.
    size: elements of a block.
    number: coefficients that are sent of each block.
  """

  blocks: int
  size: int
  number: int

  @classmethod
  def of_shape(cls, shape: Sequence[int], most: int) -> 'BlockLayout':
    """Returns the layout of a variable that sends up to `most` of a block."""
    rows, height, columns, width = dct.sides(shape)
    return cls(rows * columns, height * width, min(most, height * width))

  @property
  def sent(self) -> int:
    """Number of coefficients that are sent."""
    return self.blocks * self.number

  @property
  def index_bits(self) -> int:
    """Bits of an index in its block; 0 if all coefficients are sent."""
    if self.number == self.size:
      return 0
    return (self.size - 1).bit_length()

  @property
  def index_words(self) -> int:
    """Words of all indices."""
    return _BITS.num_words(self.sent * self.index_bits)

  @property
  def num_words(self) -> int:
    """Words of the payload."""
    return self.index_words + self.sent


def encode(coefficients: tf.Tensor, layout: BlockLayout) -> tf.Tensor:
  """Packs the largest coefficients of each block; of equal ones the first.

  Args:
    coefficients: float32 [blocks, size].
    layout: of the variable.

  Returns:
    int32 [layout.num_words].
  """
  if not layout.index_bits:
    return tf.reshape(tf.bitcast(coefficients, tf.int32), [-1])
  # As integers, magnitudes compare alike on all devices.
  words = tf.bitcast(coefficients, tf.int32)
  magnitudes = tf.bitwise.bitwise_and(words, topk.MAGNITUDE)
  indices = tf.math.top_k(magnitudes, layout.number).indices
  values = tf.gather(coefficients, indices, batch_dims=1)
  bits = tf.bitwise.right_shift(
    tf.reshape(indices, [-1, 1]), tf.range(layout.index_bits)
  )
  bits = tf.reshape(tf.bitwise.bitwise_and(bits, 1), [-1])
  values = tf.reshape(tf.bitcast(values, tf.int32), [-1])
  return tf.concat([_BITS.pack_flat(bits), values], axis=0)


def decode(
  words: tf.Tensor, layout: BlockLayout
) -> tuple[tf.Tensor, tf.Tensor]:
  """Unpacks coefficients.

  Args:
    words: int32 [layout.num_words], any values.
    layout: of the variable.

  Returns:
    int32 [sent], positions among the coefficients of all blocks, below blocks *
    size; and float32 [sent].
  """
  values = tf.bitcast(words[layout.index_words :], tf.float32)
  if not layout.index_bits:
    return tf.range(layout.sent), values
  count = layout.sent * layout.index_bits
  bits = _BITS.unpack_flat(words[: layout.index_words], count)
  bits = tf.reshape(bits, [layout.sent, layout.index_bits])
  shifted = tf.bitwise.left_shift(bits, tf.range(layout.index_bits))
  indices = tf.minimum(tf.reduce_sum(shifted, axis=1), layout.size - 1)
  firsts = tf.repeat(tf.range(layout.blocks) * layout.size, layout.number)
  return firsts + indices, values
