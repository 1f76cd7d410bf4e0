"""Batch normalisation by the examples of all workers at once.

Keras's layer asks `tf.distribute` for sums over replicas. Here the replicas are
the workers, and sums are taken in their order, so that towers and processes get
the same bits. Differentiated, a sum over the workers is a sum over the workers:
each worker's gradient is then that of all workers' losses by its own
activations, and their mean is that of the whole batch.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

from slim.nets.blocks import batch_norm
from terngrad.exchange import layer_collectives


def synchronize(model: keras.Model) -> None:
  """Lets the batch normalisations of a Keras model ask for sums."""
  for layer in batch_norm.layers_of(model):
    layer.synchronized = True


class Synchronization(layer_collectives.LayerCollectives):
  """The contexts of passes whose layers sum over the workers."""

  def context(self, device_index: int) -> tf.distribute.ReplicaContext:
    """The context in which the pass of a device's worker is traced."""
    return _Worker(self, device_index)


class _Worker(tf.distribute.ReplicaContext):
  """One worker, as a replica that Keras's layers ask for sums."""

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
    """The sum of a tensor over the workers, on each of them.

    Args:
      reduce_op: `tf.distribute.ReduceOp.SUM`.
      value: float32 [...], the same shape for all workers.
      options: of communication; not looked at.

    Returns:
      The shape of `value`, the same bits on every worker.

    Raises:
      ValueError: another `reduce_op`.
    """
    del options
    if reduce_op != tf.distribute.ReduceOp.SUM:
      raise ValueError(
        f"reduce_op: expected SUM, for which Keras's batch normalisation asks; "
        f'received {reduce_op}. Take such a layer out of the model.'
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
