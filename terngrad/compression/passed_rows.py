"""Gradients of some rows, `tf.IndexedSlices`, which travel as they are."""

import functools
from collections.abc import Collection
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import protocol
from terngrad.exchange import strategies


class PassedRows(NamedTuple):
  """What an observer gets of `tf.IndexedSlices`, which travel as they are.

  Attributes:
    bits: float64 [], of values and indices that a worker sends; the mean over
      the workers of this process.
    num_elements: float64 [], elements of the values; likewise.
    exchange: between the workers.
  """

  bits: tf.Tensor
  num_elements: tf.Tensor
  exchange: protocol.Exchange


def summed(
  context: tf.distribute.ReplicaContext,
  gradients: dict[int, tf.IndexedSlices],
  mean: bool,
) -> dict[int, tf.IndexedSlices]:
  """The sums of all replicas' rows, where one replica computes.

  Args:
    context: of this replica.
    gradients: of this replica, by their variables.
    mean: True for the means instead.

  Returns:
    By the same variables; an index may be listed more than once.
  """
  if not gradients or context.num_replicas_in_sync == 1:
    return gradients
  strategy = context.strategy
  if isinstance(strategy, strategies.OF_ONE_PROCESS):
    # TensorFlow's collectives fail in conditions, which Keras makes of
    # several steps an execution.
    merged = context.merge_call(
      functools.partial(_joined_rows, mean),
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
  of_all = context.all_reduce(op, list(gradients.values()))
  return dict(zip(gradients, of_all, strict=True))


def sent(
  gradients: Collection[tf.IndexedSlices],
) -> tuple[tf.Tensor, tf.Tensor]:
  """(bits, elements of the values) that a replica sends, float64 []."""
  parts = [part for g in gradients for part in (g.values, g.indices)]
  bits = [_count(part) * 8 * part.dtype.size for part in parts]
  elements = [_count(gradient.values) for gradient in gradients]
  return tf.add_n(bits), tf.add_n(elements)


def _joined_rows(
  mean: bool,
  strategy: tf.distribute.Strategy,
  values: Sequence[tf.Tensor],
  indices: Sequence[tf.Tensor],
) -> list[list[tuple[tf.Tensor, tf.Tensor]]]:
  """The rows of all replicas; for each the list of (values, indices)."""
  count = strategy.num_replicas_in_sync

  def joined(device: str) -> list[tuple[tf.Tensor, tf.Tensor]]:
    with tf.device(device):
      found = []
      for pair in zip(values, indices, strict=True):
        parts = map(strategy.experimental_local_results, pair)
        rows, places = (tf.concat(part, axis=0) for part in parts)
        found.append((rows / count if mean else rows, places))
      return found

  return [joined(device) for device in strategy.extended.worker_devices]


def _count(tensor: tf.Tensor) -> tf.Tensor:
  """Elements of a tensor, float64 []."""
  return tf.cast(tf.size(tensor), tf.float64)
