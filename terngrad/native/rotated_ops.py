"""The kernels of codes of rotated blocks, as functions on tensors.

As those of `ops`: in eager code and graphs, not under XLA.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad import native


class Code(NamedTuple):
  """A code of rotated blocks; see `codec.methods.transforms.eden`.

  Attributes:
    levels: of magnitudes, rising integers below 256, 1, 2, 4 or 8 of them; 0
      and 1 for codes of -1, 0 and 1.
    base: of a word's digits: 2, 3, 4 or 16.
    places: digits of a word, as many as fit in 32 bits.
  """

  levels: tuple[int, ...]
  base: int
  places: int


def encode(
  pieces: Sequence[tf.Tensor],
  sizes: Sequence[int],
  factors: tf.Tensor,
  key: tf.Tensor,
  borders: Sequence[float],
  num_words: int,
  code: Code,
) -> tf.Tensor:
  """Rotates, chooses the nearest levels, scales and packs.

  Args:
    pieces: list of float32, the v variables, or one tensor with all of them.
    sizes: list of v int, their elements.
    factors: float32 [v], powers of 2 that elements are multiplied by before
      they are rotated.
    key: uint32 [2] or more, of the signs.
    borders: between levels, in standard deviations of a block; one less.
    num_words: of the payload.
    code: `Code`.

  Returns:
    int32 [num_words]: the key, blocks' scales, codes.
  """
  return native.library().terngrad_encode_rotated(
    gradients=pieces,
    factors=factors,
    borders=tf.constant(borders, tf.float64, [len(borders)]),
    key=key,
    sizes=sizes,
    num_words=num_words,
    **code._asdict(),
  )


def decode_sum(
  parts: Sequence[tf.Tensor],
  factors: tf.Tensor,
  shapes: Sequence[Sequence[int]],
  scale: float,
  code: Code,
) -> list[tf.Tensor]:
  """Unpacks payloads, rotates back, and adds in the order of the workers.

  Args:
    parts: list of int32 [n, words], see `codec.method.Piece`.
    factors: float32 [v], that sums are multiplied by.
    shapes: list of v static shapes.
    scale: Python float, multiplies the products.
    code: `Code`.

  Returns:
    List of v float32 of `shapes`.
  """
  return native.library().terngrad_decode_rotated(
    parts=parts,
    factors=factors,
    V=len(shapes),
    shapes=shapes,
    scale=scale,
    **code._asdict(),
  )


def encode_table(
  pieces: Sequence[tf.Tensor],
  sizes: Sequence[int],
  scales: tuple[tf.Tensor, tf.Tensor],
  keys: tuple[tf.Tensor, tf.Tensor],
  num_words: int,
  table: Sequence[int],
) -> tf.Tensor:
  """Rotates variables, rounds at random to entries of a table, and packs.

  Args:
    pieces: list of float32, the v variables, or one tensor with all of them.
    sizes: list of v int, their elements.
    scales: pair of float32 [blocks], of all variables' blocks: what elements
      are multiplied by before they are rotated, and 2**16 over what an integer
      of the table stands for after.
    keys: pair of uint32 [v, 2], of the signs and of the draws.
    num_words: of the payload.
    table: 16 integers that rise from -15 to 15.

  Returns:
    int32 [num_words]: the numbers of entries, 8 a word.
  """
  factors, inverses = scales
  signs, draws = keys
  return native.library().terngrad_encode_table(
    gradients=pieces,
    factors=factors,
    inverses=inverses,
    signs=signs,
    draws=draws,
    sizes=sizes,
    num_words=num_words,
    table=table,
  )


def decode_table(
  sums: tf.Tensor,
  factors: tf.Tensor,
  signs: tf.Tensor,
  shapes: Sequence[Sequence[int]],
) -> list[tf.Tensor]:
  """Rotates sums of entries back.

  Args:
    sums: int32 [n or more], of all variables' blocks.
    factors: float32 [blocks], that rotated sums are multiplied by.
    signs: uint32 [v, 2], keys.
    shapes: list of v static shapes.

  Returns:
    List of v float32 of `shapes`.
  """
  return native.library().terngrad_decode_table(
    sums=sums, factors=factors, signs=signs, V=len(shapes), shapes=shapes
  )
