"""Codes whose words hold few elements: their indices, and their values."""

import abc
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec import coded
from terngrad.codec import method
from terngrad.codec.stages import chain
from terngrad.codec.stages import wire
from terngrad.native import ops
from terngrad.native import sparse_ops


class FewElements(coded.Code):
  """A code of few elements, of which no worker's are spread over a tensor."""

  compiled = False  # see `topk.largest`

  @abc.abstractmethod
  def bucket_elements(
    self, words: tf.Tensor, sizes: Sequence[int]
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """(int32 [k] indices in the bucket, float32 [k] values) of a payload.

    The index is the number of all elements where there is none; safe for any
    words. Those of a payload that an encoder made are each another.
    """

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """See `coded.Code`: payloads are added in the order of the workers."""
    sizes = method.sizes_of(shapes)
    words = self._rows(parts, sizes)

    def add(row: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
      indices, values = self.bucket_elements(words[row], sizes)
      indices = indices[:, tf.newaxis]
      return row + 1, tf.tensor_scatter_nd_add(total, indices, values)

    _, total = tf.while_loop(
      lambda row, _: row < words.shape[0],
      add,
      # One past the end, for what is no element.
      (tf.constant(0), tf.zeros([sum(sizes) + 1])),
      parallel_iterations=1,
    )
    return chain.gradients_of(None, total[:-1], shared, shapes, scale)

  def _rows(
    self, parts: Sequence[tf.Tensor], sizes: Sequence[int]
  ) -> tf.Tensor:
    """int32 [n, w]: the payloads, of the right length, in order."""
    wire.check_length(self.name, self.words_of(sizes), parts, sum(sizes))
    return method.rows_in_order(parts)


class OnKernels(FewElements):
  """With a kernel that adds elements, and one for norms."""

  probe = staticmethod(ops.norms)

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """See `coded.Code`."""
    sizes = method.sizes_of(shapes)
    words = self._rows(parts, sizes)
    found = [
      self.bucket_elements(words[row], sizes) for row in range(words.shape[0])
    ]
    indices, values = map(tf.stack, zip(*found, strict=True))
    return sparse_ops.add_elements(indices, values, shapes, scale)


def inside(indices: tf.Tensor, num_elements: int) -> tf.Tensor:
  """int32 [k] indices, with n for those that no variable of n elements has."""
  outside = (indices < 0) | (indices >= num_elements)
  return tf.where(outside, num_elements, indices)


def check(
  name: str, indices: np.ndarray, values: np.ndarray, num_elements: int
) -> None:
  """Raises ValueError for elements that no encoder sends.

  Args:
    name: of the packing.
    indices: int32 [k], of a payload.
    values: float32 [k].
    num_elements: below which indices must be.
  """
  inside = np.all((indices >= 0) & (indices < num_elements))
  if not inside or np.any(indices[1:] <= indices[:-1]):
    raise ValueError(
      f'{name}: expected indices below {num_elements}, each once and in rising '
      'order, received others. The payload was damaged or made by another '
      'codec: send it again.'
    )
  if not np.isfinite(values).all():
    raise ValueError(
      f'{name}: expected finite values, received others. The payload was '
      'damaged: send it again.'
    )


def scattered(
  indices: tf.Tensor, values: tf.Tensor, num_elements: int
) -> tf.Tensor:
  """float32 [n]: zeros but for the elements."""
  indices, zeros = indices[:, tf.newaxis], tf.zeros([num_elements + 1])
  return tf.tensor_scatter_nd_update(zeros, indices, values)[:-1]
