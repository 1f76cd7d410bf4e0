"""The kernels of codes that send few elements, as functions on tensors.

As those of `ops`: in eager code and graphs, not under XLA.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad import native


def largest(elements: tf.Tensor, number: int) -> tuple[tf.Tensor, tf.Tensor]:
  """The elements of largest magnitude, of equal ones the first.

  Args:
    elements: float32 [n].
    number: k <= n.

  Returns:
    int32 [k], their indices in rising order, and float32 [k].
  """
  found = native.library().terngrad_largest(elements=elements, number=number)
  return found.indices, found.values


def encode_threshold(
  elements: tf.Tensor, number: int, above: float
) -> tf.Tensor:
  """The largest elements that reach a threshold.

  Args:
    elements: float32 [n].
    number: k <= n, the most that are taken, of equal ones the first.
    above: float >= 0, the least magnitude; zeros are not taken.

  Returns:
    int32 [1 + 2 k]: how many, then for each in rising order its index and its
    value's bits, then zeros.
  """
  return native.library().terngrad_encode_threshold(
    elements=elements, number=number, above=above
  )


def pack_indices(indices: tf.Tensor, num_elements: int) -> tf.Tensor:
  """`codec.methods.sparse.elias_fano.pack`: int32 [k] to int32 [words].

  Args:
    indices: int32 [k], rising, from 0 to n - 1.
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
  """`codec.methods.sparse.elias_fano.unpack`, safe for any words.

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
  """Adds rows of few elements to zeros, in their order.

  Args:
    indices: int32 [rows, k], of elements that are counted through all
      variables; those that none has are passed over. Fastest in rising order.
    values: float32 [rows, k].
    shapes: list of v static shapes.
    scale: Python float, multiplies the sums.

  Returns:
    List of v float32 of `shapes`.
  """
  return native.library().terngrad_add_elements(
    indices=indices, values=values, V=len(shapes), shapes=shapes, scale=scale
  )
