"""Rows of a batch, shared by virtual workers."""

from typing import Any
from typing import TypeAlias

import keras
import tensorflow as tf

_Tensor: TypeAlias = tf.Tensor | tf.SparseTensor | tf.RaggedTensor


class Rows:
  """Which rows of a batch each virtual worker gets.

  N workers get equal shares of consecutive rows, or one row more or less; of
  fewer rows than workers some get none.

  Attributes:
    count: int32 [], all rows.
    all_work: True where every worker is known to get a row.
  """

  def __init__(self, data: Any, workers: int) -> None:
    """Shares a batch.

    Args:
      data: nest of tensors, sparse and ragged ones too, and None; as `fit`
        gives it to `train_step`.
      workers: N.
    """
    self._data = data
    self._workers = workers
    first = next(t for t in keras.tree.flatten(data) if t is not None)
    size = first.shape[0]
    self._each = size // workers if size and size % workers == 0 else None
    self.count = tf.shape(first)[0]
    self.all_work = size is not None and size >= workers

  def of(self, worker: tf.Tensor) -> Any:
    """The rows of a worker, a nest like the whole; its number is int32 []."""
    begin, end = self._range(worker)
    return keras.tree.map_structure(
      lambda tensor: _cut(tensor, begin, end, self._each), self._data
    )

  def size(self, worker: tf.Tensor) -> tf.Tensor:
    """How many rows a worker has, int32 []."""
    begin, end = self._range(worker)
    return end - begin

  def weight(self, worker: tf.Tensor) -> tf.Tensor | None:
    """Rows of a worker in units of the mean, float32 []; None where all 1."""
    if self._each:
      return None
    own = tf.cast(self.size(worker) * self._workers, tf.float32)
    return own / tf.cast(self.count, tf.float32)

  def share(self, worker: tf.Tensor) -> tf.Tensor:
    """The worker's share of all rows, float32 []."""
    own = tf.cast(self.size(worker), tf.float32)
    return own / tf.cast(self.count, tf.float32)

  def _range(self, worker: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """First row of a worker and the one after its last, int32 []."""
    begin = worker * self.count // self._workers
    return begin, (worker + 1) * self.count // self._workers


def _cut(
  tensor: _Tensor | None, begin: tf.Tensor, end: tf.Tensor, size: int | None
) -> _Tensor | None:
  """The rows from `begin` to `end`; `size` of them where that is known."""
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
