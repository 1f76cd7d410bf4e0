"""The kernels of codes that send few elements, as functions on tensors.

They run in eager code and graphs, not under XLA. `encode` and `decode_sum` are
for tensors on a GPU and need `gpu.available()`; the others are for CPUs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad import native

# The order of the enumeration in src/gpu/tables.h.
LISTS, SIGNED_INDICES, PAIRS = range(3)


class SparseCode(NamedTuple):
  """The parameters of a code for the GPU kernels.

  Attributes:
    kind: of words. LISTS: indices, then values (topk); SIGNED_INDICES: mean
      magnitude, signs, packed indices (stc); PAIRS: the number of elements,
      then indices and values (threshold).
    numbers: how many elements are sent of each variable, or for PAIRS at most
      of all together.
    above: the smallest magnitude that is sent, >= 0; PAIRS send no zeros.
  """

  kind: int
  numbers: Sequence[int]
  above: float = 0.0


def largest(elements: tf.Tensor, number: int) -> tuple[tf.Tensor, tf.Tensor]:
  """Selects the elements of largest magnitude; of equal ones the first.

  Args:
    elements: float32 [n].
    number: k <= n.

  Returns:
    (int32 [k] indices in ascending order, float32 [k] elements).
  """
  found = native.library().terngrad_largest(elements=elements, number=number)
  return found.indices, found.values


def encode_threshold(
  elements: tf.Tensor, number: int, above: float
) -> tf.Tensor:
  """Encodes the largest elements that reach a threshold.

  Args:
    elements: float32 [n].
    number: k <= n, the largest number of elements; of equal ones the first.
    above: the smallest magnitude, >= 0; zeros are not encoded.

  Returns:
    int32 [1 + 2 k]: the number of elements; then, in ascending order, the index
    and the bits of each element; then zeros.
  """
  return native.library().terngrad_encode_threshold(
    elements=elements, number=number, above=above
  )


def pack_indices(indices: tf.Tensor, num_elements: int) -> tf.Tensor:
  """Packs ascending indices as `codec.methods.sparse.elias_fano.pack` does.

  Args:
    indices: int32 [k], ascending, from 0 to n - 1.
    num_elements: n.

  Returns:
    int32 [words].
  """
  return native.library().terngrad_pack_indices(
    indices=indices, number=indices.shape[0], num_elements=num_elements
  )


def unpack_indices(
  words: tf.Tensor, number: int, num_elements: int
) -> tf.Tensor:
  """Inverts `pack_indices`; safe for any words.

  Args:
    words: int32 [words].
    number: k.
    num_elements: n.

  Returns:
    int32 [k].
  """
  return native.library().terngrad_unpack_indices(
    words=words, number=number, num_elements=num_elements
  )


def add_elements(
  indices: tf.Tensor,
  values: tf.Tensor,
  shapes: Sequence[Sequence[int]],
  scale: float,
) -> list[tf.Tensor]:
  """Adds rows of few elements to zeros, in the order of the rows.

  Args:
    indices: int32 [rows, k], of elements counted through all variables; indices
      out of range are ignored. Ascending order is fastest.
    values: float32 [rows, k].
    shapes: the v static shapes.
    scale: factor of the sums.

  Returns:
    v float32 of `shapes`.
  """
  return native.library().terngrad_add_elements(
    indices=indices, values=values, V=len(shapes), shapes=shapes, scale=scale
  )


def encode(
  pieces: Sequence[tf.Tensor],
  sizes: Sequence[int],
  num_words: int,
  code: SparseCode,
) -> tf.Tensor:
  """Selects and packs the largest elements of all variables, on a GPU.

  Args:
    pieces: float32, one tensor per variable or one with all variables.
    sizes: elements of each of the v variables.
    num_words: of the payload.
    code: the parameters.

  Returns:
    int32 [num_words]: the words of each variable, or for PAIRS of all.
  """
  return native.operation('encode_elements', on_gpus=True)(
    gradients=pieces,
    sizes=sizes,
    num_words=num_words,
    **code._asdict(),
  )


def decode_sum(
  parts: Sequence[tf.Tensor],
  shapes: Sequence[Sequence[int]],
  scale: float,
  code: SparseCode,
) -> list[tf.Tensor]:
  """Unpacks payloads and adds their elements to zeros, on a GPU.

  Args:
    parts: int32 [n, words], in the row order of `codec.method.Piece`.
    shapes: the v static shapes.
    scale: factor of the sums.
    code: the parameters.

  Returns:
    v float32 of `shapes`.
  """
  return native.operation('add_elements', on_gpus=True)(
    parts=parts,
    V=len(shapes),
    shapes=shapes,
    scale=scale,
    kind=code.kind,
    numbers=code.numbers,
  )
