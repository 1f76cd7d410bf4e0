"""Batch normalisation by the examples of all workers at once.

Keras's layer asks `tf.distribute` for sums over replicas. Here the replicas are
the workers, and sums are taken in their order, so that towers and processes get
the same bits. Differentiated, a sum over the workers is a sum over the workers:
each worker's gradient is then that of all workers' losses by its own
activations, and their mean is that of the whole batch.
"""

import contextlib

import keras
import tensorflow as tf

from terngrad.exchange import inside


def normalize_together(model):
  """Lets the batch normalisations of a Keras model ask for sums."""
  for layer in model.layers:
    if isinstance(layer, keras.layers.BatchNormalization):
      layer.synchronized = True
    elif isinstance(layer, keras.Model):
      normalize_together(layer)


def apart(place):
  """The context of a pass whose layers see their own worker only."""
  del place
  return contextlib.nullcontext()


def together(exchange):
  """Makes the contexts of passes whose layers sum over the workers.

  Args:
    exchange: see `inside.Inside`.

  Returns:
    A function of a place of the exchange that returns the context in which its
    worker's pass is traced.

  Raises:
    ValueError: see `inside.Inside`.
  """
  workers = inside.Inside(exchange)
  return lambda place: _Worker(workers, place)


class _Worker(tf.distribute.ReplicaContext):
  """One worker, as a replica that Keras's layers ask for sums."""

  def __init__(self, workers, place):
    super().__init__(tf.distribute.get_strategy(), place)
    self._workers = workers
    self._place = place

  def all_reduce(self, reduce_op, value, options=None):
    """The sum of a tensor over the workers, on each of them."""
    del options
    if reduce_op != tf.distribute.ReduceOp.SUM:
      raise ValueError(f'reduce_op: expected SUM; received {reduce_op}.')

    def add(tensor):
      return tf.reduce_sum(self._workers.gather(self._place, tensor), axis=0)

    @tf.custom_gradient
    def total(tensor):
      return add(tensor), add

    return total(value)
