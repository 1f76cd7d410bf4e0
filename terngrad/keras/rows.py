"""Partition of a batch's rows over virtual workers."""

from typing import Any
from typing import TypeAlias

import keras
import tensorflow as tf

_Tensor: TypeAlias = tf.Tensor | tf.SparseTensor | tf.RaggedTensor


class Rows:
  """The rows of a batch that each virtual worker gets.

  N workers get consecutive rows, in equal numbers or one more or less. If there
  are fewer rows than workers, some workers get none.

  Attributes:
    count: int32 [], number of all rows.
    all_have_rows: True if every worker is known to get at least one row.
  """

  def __init__(self, data: Any, workers: int) -> None:
    """Partitions a batch.

    Args:
      data: nest of tensors (dense, sparse or ragged) and None, as `fit` passes
        it to `train_step`.
      workers: N.
    """
    self._data = data
    self._workers = workers
    first = next(t for t in keras.tree.flatten(data) if t is not None)
    size = first.shape[0]
    self._rows_each = size // workers if size and size % workers == 0 else None
    self.count = tf.shape(first)[0]
    self.all_have_rows = size is not None and size >= workers

  def slice(self, worker: tf.Tensor) -> Any:
    """Returns a worker's rows, a nest like `data`; `worker` is int32 []."""
    begin, end = self._range(worker)
    return keras.tree.map_structure(
      lambda tensor: _slice_rows(tensor, begin, end, self._rows_each),
      self._data,
    )

  def size(self, worker: tf.Tensor) -> tf.Tensor:
    """Returns the number of rows of a worker, int32 []."""
    begin, end = self._range(worker)
    return end - begin

  def weight(self, worker: tf.Tensor) -> tf.Tensor | None:
    """Divides a worker's rows by the mean, float32 []; None if all are 1."""
    if self._rows_each:
      return None
    size = tf.cast(self.size(worker) * self._workers, tf.float32)
    return size / tf.cast(self.count, tf.float32)

  def share(self, worker: tf.Tensor) -> tf.Tensor:
    """Returns the worker's fraction of all rows, float32 []."""
    size = tf.cast(self.size(worker), tf.float32)
    return size / tf.cast(self.count, tf.float32)

  def _range(self, worker: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a worker's first row and the row after its last, int32 []."""
    begin = worker * self.count // self._workers
    return begin, (worker + 1) * self.count // self._workers


def _slice_rows(
  tensor: _Tensor | None, begin: tf.Tensor, end: tf.Tensor, size: int | None
) -> _Tensor | None:
  """Slices rows `begin` to `end`; `size` is their number if it is static."""
  if tensor is None:
    return None
  if not isinstance(tensor, tf.SparseTensor):
    part = tensor[begin:end]
    if size and not isinstance(part, tf.RaggedTensor):
      part = tf.ensure_shape(part, [size, *tensor.shape[1:]])
    return part
  others = tensor.dense_shape[1:]
  begin, end = tf.cast(begin, tf.int64), tf.cast(end, tf.int64)
  start = tf.concat([[begin], tf.zeros_like(others)], axis=0)
  part = tf.sparse.slice(
    tensor, start, tf.concat([[end - begin], others], axis=0)
  )
  part.set_shape([size, *tensor.shape[1:]])
  return part
