"""Synchronized batch normalization: statistics over all workers.

Keras's layer calls `all_reduce` of the `tf.distribute` replica context. Here a
replica is a worker. Sums run in the order of the workers, so that towers and
collectives get the same bits.

The gradient of a sum over the workers is again a sum over the workers. A
worker's gradient is therefore that of the sum of all workers' losses by its
activations, and the mean of these gradients is that of the whole batch.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

from slim.nets.blocks import batch_norm
from terngrad.exchange import layer_collectives


def synchronize(model: keras.Model) -> None:
  """Turns on `synchronized` in the batch normalizations of a Keras model."""
  for layer in batch_norm.find_layers(model):
    layer.synchronized = True


class Synchronization(layer_collectives.LayerCollectives):
  """Makes the replica contexts in which layers sum over the workers."""

  def context(self, device_index: int) -> tf.distribute.ReplicaContext:
    """The context for tracing the pass of the worker of a device."""
    return _WorkerContext(self, device_index)


class _WorkerContext(tf.distribute.ReplicaContext):
  """The replica context of one worker; Keras's layers call `all_reduce`."""

  def __init__(
    self, workers: layer_collectives.LayerCollectives, device_index: int
  ) -> None:
    super().__init__(tf.distribute.get_strategy(), device_index)
    self._workers = workers
    self._device_index = device_index

  def all_reduce(
    self,
    reduce_op: tf.distribute.ReduceOp,
    value: tf.Tensor,
    options: tf.distribute.experimental.CommunicationOptions | None = None,
  ) -> tf.Tensor:
    """Sums a tensor over the workers, on each of them.

    Args:
      reduce_op: must be `tf.distribute.ReduceOp.SUM`.
      value: float32 [...], the same shape on all workers.
      options: ignored.

    Returns:
      float32 in the shape of `value`, the same bits on every worker.

    Raises:
      ValueError: another `reduce_op`.
    """
    del options
    if reduce_op != tf.distribute.ReduceOp.SUM:
      raise ValueError(
        f"reduce_op: expected SUM, as Keras's batch normalization uses it, "
        f'received {reduce_op}. Remove the layer that calls all_reduce with it.'
      )

    def add(tensor: tf.Tensor) -> tf.Tensor:
      return tf.reduce_sum(
        self._workers.gather(self._device_index, tensor), axis=0
      )

    @tf.custom_gradient
    def total(
      tensor: tf.Tensor,
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
      return add(tensor), add

    return total(value)
