"""Base classes of sparse codes, whose words contain indices and values."""

import abc
import copy
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec import coded
from terngrad.codec import method
from terngrad.codec.stages import chain
from terngrad.codec.stages import wire
from terngrad.native import ops
from terngrad.native import sparse_ops


def check_indices(name: str, sizes: Sequence[int]) -> None:
  """Raises ValueError if int32 indices cannot name all elements.

  Args:
    name: of the code, for the message.
    sizes: elements of each variable.
  """
  if sum(sizes) > tf.int32.max:
    raise ValueError(
      f'{name}: expected at most {tf.int32.max} elements in all variables with '
      f'this code, received {sum(sizes)}. Give some of them another code with '
      '--codec_rules.'
    )


class FewElements(coded.Code):
  """A sparse code, which decodes without a dense tensor for each worker.

  Attributes:
    sorts: True to find the largest elements by sorting all; see `topk.largest`.
  """

  sorts = False

  compiled = False  # XLA sorts: see `topk.largest`

  def on_gpus(self) -> method.Method:
    """Returns the code with GPU kernels, or compiled.

    Otherwise its int32 is in host memory.
    """
    fast = super().on_gpus()
    if fast is not self:
      return fast
    made = copy.copy(self)
    made.compiled = made.sorts = True
    return made

  def words_of(self, sizes: Sequence[int]) -> int:
    """Returns the words of a payload of variables of these sizes.

    Raises:
      ValueError: they have more elements than int32 indices can name.
    """
    check_indices(self.name, sizes)
    return super().words_of(sizes)

  @abc.abstractmethod
  def bucket_elements(
    self, words: tf.Tensor, sizes: Sequence[int]
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Unpacks (int32 [k] indices in the bucket, float32 [k] values).

    An index equal to the number of elements in the bucket marks an unused
    entry. Any words are safe. An encoder's payload has no index twice.
    """

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """Adds the payloads in the order of the workers; see `coded.Code`."""
    sizes = method.sizes_of(shapes)
    words = self._rows(parts, sizes)

    def add(row: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
      indices, values = self.bucket_elements(words[row], sizes)
      indices = indices[:, tf.newaxis]
      return row + 1, tf.tensor_scatter_nd_add(total, indices, values)

    _, total = tf.while_loop(
      lambda row, _: row < words.shape[0],
      add,
      # One more element, for unused entries.
      (tf.constant(0), tf.zeros([sum(sizes) + 1])),
      parallel_iterations=1,
    )
    return chain.gradients_of(None, total[:-1], shared_probe, shapes, scale)

  def _rows(
    self, parts: Sequence[tf.Tensor], sizes: Sequence[int]
  ) -> tf.Tensor:
    """Checks the payloads' length; returns int32 [n, w] in worker order."""
    wire.check_length(self.name, self.words_of(sizes), parts, sum(sizes))
    return method.stack_by_worker(parts)


class FewElementsOnKernels(FewElements):
  """A sparse code with CPU kernels for norms and for sums of elements."""

  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the norms, float32 [v]."""
    return ops.norms(gradients)

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """Adds the elements with one kernel; see `coded.Code`."""
    sizes = method.sizes_of(shapes)
    words = self._rows(parts, sizes)
    found = [
      self.bucket_elements(words[row], sizes) for row in range(words.shape[0])
    ]
    indices, values = map(tf.stack, zip(*found, strict=True))
    return sparse_ops.add_elements(indices, values, shapes, scale)


class FewElementsOnBoth(FewElementsOnKernels):
  """A sparse code with CPU kernels for these, and GPU kernels for all."""

  _uses_gpus = False

  @abc.abstractmethod
  def kernels(self, sizes: Sequence[int]) -> sparse_ops.SparseCode:
    """Returns the parameters of the GPU kernels."""

  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the norms, float32 [v]."""
    return ops.norms(gradients, bool(self._uses_gpus))

  def encode_pieces(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """Encodes all variables, on GPUs with one operation; see `coded.Code`."""
    if self._uses_gpus:
      code = self.kernels(sizes)
      return sparse_ops.encode(pieces, sizes, self.words_of(sizes), code)
    return super().encode_pieces(  # type: ignore[safe-super]
      pieces, sizes, local_probe, shared_probe, key
    )

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """Adds the elements with one operation; see `coded.Code`."""
    if not self._uses_gpus:
      return super().decode_sum(parts, shared_probe, shapes, scale)
    code = self.kernels(method.sizes_of(shapes))
    return sparse_ops.decode_sum(parts, shapes, scale, code)


def mask_invalid(indices: tf.Tensor, num_elements: int) -> tf.Tensor:
  """Replaces indices outside of 0 to n - 1 by n, int32 [k]."""
  outside = (indices < 0) | (indices >= num_elements)
  return tf.where(outside, num_elements, indices)


def check(
  name: str, indices: np.ndarray, values: np.ndarray, num_elements: int
) -> None:
  """Raises ValueError for elements that no encoder sends.

  Args:
    name: the packing, for messages.
    indices: int32 [k], of a payload.
    values: float32 [k].
    num_elements: indices must be below this.
  """
  valid = np.all((indices >= 0) & (indices < num_elements))
  if not valid or np.any(indices[1:] <= indices[:-1]):
    raise ValueError(
      f'{name}: expected distinct indices below {num_elements} in ascending '
      'order, received others. The payload is corrupted or from another codec. '
      'Send it again.'
    )
  if not np.isfinite(values).all():
    raise ValueError(
      f'{name}: expected finite values, received others. The payload is '
      'corrupted. Send it again.'
    )


def to_dense(
  indices: tf.Tensor, values: tf.Tensor, num_elements: int
) -> tf.Tensor:
  """Returns float32 [n] with these elements, and zeros elsewhere."""
  indices, zeros = indices[:, tf.newaxis], tf.zeros([num_elements + 1])
  return tf.tensor_scatter_nd_update(zeros, indices, values)[:-1]
