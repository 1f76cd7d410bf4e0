"""The kernels of codes of rotated blocks, as functions on tensors.

They run in eager code and graphs, not under XLA.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad import native


class RotatedCode(NamedTuple):
  """The parameters of a code in `codec.methods.transforms.eden`.

  Attributes:
    levels: 1, 2, 4 or 8 magnitudes, increasing integers below 256; 0 and 1 for
      codes of -1, 0 and 1.
    base: of a word's digits: 2, 3, 4 or 16.
    places: digits per word, as many as fit in 32 bits.
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
  code: RotatedCode,
  on_gpus: bool = False,
) -> tf.Tensor:
  """Rotates, chooses the nearest levels, scales and packs.

  Args:
    pieces: float32, one tensor per variable or one with all variables.
    sizes: elements of each of the v variables.
    factors: float32 [v], powers of 2 that multiply elements before the
      rotation.
    key: uint32 [2] or more, of the rotation's signs.
    borders: limits between adjacent levels, in standard deviations of a block;
      one fewer than levels.
    num_words: of the payload.
    code: the parameters.
    on_gpus: whether tensors are on a GPU; see `gpu.available`.

  Returns:
    int32 [num_words]: the key, the scales of the blocks, the codes. The scale
    of a block with NaN or infinity is NaN, of equal bits on all devices.
  """
  return native.operation('encode_rotated', on_gpus)(
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
  code: RotatedCode,
  on_gpus: bool = False,
) -> list[tf.Tensor]:
  """Unpacks payloads, rotates back, and adds in the order of the workers.

  Args:
    parts: int32 [n, words], in the row order of `codec.method.Piece`.
    factors: float32 [v], factors of the sums.
    shapes: the v static shapes.
    scale: factor, applied after `factors`.
    code: the parameters.
    on_gpus: as for `encode`.

  Returns:
    v float32 of `shapes`.
  """
  return native.operation('decode_rotated', on_gpus)(
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
  on_gpus: bool = False,
) -> tf.Tensor:
  """Rotates variables, rounds at random to entries of a table, and packs.

  Args:
    pieces: float32, one tensor per variable or one with all variables.
    sizes: elements of each of the v variables.
    scales: two float32 [blocks], for the blocks of all variables: the factor of
      elements before the rotation, and 2**16 divided by the value of 1 in the
      table after it.
    keys: two uint32 [v, 2]: for the rotation's signs and for the draws.
    num_words: of the payload.
    table: 16 increasing integers from -15 to 15.
    on_gpus: as for `encode`.

  Returns:
    int32 [num_words]: the indices of entries, 8 per word.
  """
  factors, inverses = scales
  signs, draws = keys
  return native.operation('encode_table', on_gpus)(
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
  on_gpus: bool = False,
) -> list[tf.Tensor]:
  """Rotates sums of table entries back.

  Args:
    sums: int32 [n or more], of the blocks of all variables; on GPUs also
      float32 of the same bits.
    factors: float32 [blocks], factors of the rotated sums.
    signs: uint32 [v, 2], keys of the rotation's signs.
    shapes: the v static shapes.
    on_gpus: as for `encode`.

  Returns:
    v float32 of `shapes`.
  """
  return native.operation('decode_table', on_gpus)(
    sums=sums, factors=factors, signs=signs, V=len(shapes), shapes=shapes
  )
