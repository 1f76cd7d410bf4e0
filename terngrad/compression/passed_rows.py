"""Sums of sparse gradients (`tf.IndexedSlices`), sent uncompressed."""

import functools
from collections.abc import Collection
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import protocol
from terngrad.exchange import strategies


class PassedRows(NamedTuple):
  """The size of a step's sparse gradients, passed to the observer.

  Attributes:
    bits: float64 [], bits of the values and indices that a worker sends; mean
      over the workers of this process.
    num_elements: float64 [], elements of the values; likewise a mean.
    exchange: the exchange between the workers.
  """

  bits: tf.Tensor
  num_elements: tf.Tensor
  exchange: protocol.Exchange


def sum_rows(
  context: tf.distribute.ReplicaContext,
  gradients: dict[int, tf.IndexedSlices],
  mean: bool,
) -> dict[int, tf.IndexedSlices]:
  """Sums the sparse gradients of all replicas, called in each replica.

  Args:
    context: context of this replica.
    gradients: sparse gradients of this replica, by index of their variable.
    mean: True returns means instead of sums.

  Returns:
    Sparse gradients by the same indices; a row index can occur more than once.
  """
  if not gradients or context.num_replicas_in_sync == 1:
    return gradients
  strategy = context.strategy
  if isinstance(strategy, strategies.LOCAL_STRATEGIES):
    # TensorFlow's collectives fail inside `tf.cond`, which Keras uses if
    # `steps_per_execution` is above 1.
    merged = context.merge_call(
      functools.partial(_join_rows, mean),
      args=(
        [tf.identity(g.values) for g in gradients.values()],
        [tf.identity(g.indices) for g in gradients.values()],
      ),
    )
    number = tf.get_static_value(context.replica_id_in_sync_group)
    return {
      index: tf.IndexedSlices(*joined, gradient.dense_shape)
      for (index, gradient), joined in zip(
        gradients.items(), merged[number], strict=True
      )
    }
  op = tf.distribute.ReduceOp.MEAN if mean else tf.distribute.ReduceOp.SUM
  sums = context.all_reduce(op, list(gradients.values()))
  return dict(zip(gradients, sums, strict=True))


def count_sent(
  gradients: Collection[tf.IndexedSlices],
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns (bits, elements of values) that a replica sends, float64 []."""
  parts = [part for g in gradients for part in (g.values, g.indices)]
  bits = [_count(part) * 8 * part.dtype.size for part in parts]
  elements = [_count(gradient.values) for gradient in gradients]
  return tf.add_n(bits), tf.add_n(elements)


def _join_rows(
  mean: bool,
  strategy: tf.distribute.Strategy,
  values: Sequence[tf.Tensor],
  indices: Sequence[tf.Tensor],
) -> list[list[tuple[tf.Tensor, tf.Tensor]]]:
  """Concatenates all replicas' rows; a list of (values, indices) per device."""
  count = strategy.num_replicas_in_sync

  def join(device: str) -> list[tuple[tf.Tensor, tf.Tensor]]:
    with tf.device(device):
      found = []
      for pair in zip(values, indices, strict=True):
        parts = map(strategy.experimental_local_results, pair)
        rows, row_indices = (tf.concat(part, axis=0) for part in parts)
        found.append((rows / count if mean else rows, row_indices))
      return found

  return [join(device) for device in strategy.extended.worker_devices]


def _count(tensor: tf.Tensor) -> tf.Tensor:
  """Returns the number of elements of a tensor, float64 []."""
  return tf.cast(tf.size(tensor), tf.float64)
