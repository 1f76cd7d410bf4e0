"""Compressed gradients for who chooses a strategy and no optimizer.

A strategy is asked for sums of gradients and of much else, synchronized batch
normalization for one, and their shapes do not tell them apart. So Keras's
optimizers say so while they ask.
"""

import functools
from typing import NamedTuple

import keras
import tensorflow as tf
from absl import logging
from tensorflow.python.distribute import distribute_utils
from tensorflow.python.distribute import values as distributed

from terngrad.codec import policy
from terngrad.compression import compression
from terngrad.compression import compressor as compressors
from terngrad.keras import optimizer as optimizers
from terngrad.keras import wrapping


class CompressedReduce(tf.distribute.ReductionToOneDevice):
  """What a `MirroredStrategy` adds up by, with coded gradients.

      strategy = tf.distribute.MirroredStrategy(
        cross_device_ops=terngrad.keras.CompressedReduce('ternary')
      )

  Compresses what a Keras optimizer asks for while it applies gradients. All
  else passes as it is: it is added up on one device.

  Attributes:
    compressed: tensors that were compressed, counted where steps are traced.
    passed: tensors that were not.
  """

  def __init__(self, codec='ternary', seed=0):
    """Makes what `cross_device_ops` takes; for one model.

    Args:
      codec: as for `CompressedOptimizer`, one that remembers nothing.
      seed: integer, of the random codes.

    Raises:
      ValueError: a codec that is none, or that remembers.
    """
    super().__init__()
    compression.refuse_states(
      codec,
      'What a strategy remembers is in no checkpoint: use CompressedOptimizer.',
    )
    self._compressor = compressors.Compressor(codec, seed)
    self.compressed = self.passed = 0
    _mark()

  def batch_reduce_implementation(
    self, reduce_op, value_destination_pairs, options
  ):
    """Adds up values of all replicas; see `tf.distribute.CrossDeviceOps`.

    Args:
      reduce_op: `tf.distribute.ReduceOp`.
      value_destination_pairs: list of pairs of a value of all replicas and
        where the sum shall be.
      options: of communication, not looked at.

    Returns:
      List of values of all replicas.
    """
    pairs = list(value_destination_pairs)
    asked = _asked if reduce_op == tf.distribute.ReduceOp.SUM else None
    dense = [
      i
      for i, (value, _) in enumerate(pairs)
      if asked and not isinstance(value.values[0], tf.IndexedSlices)
    ]
    others = [i for i in range(len(pairs)) if i not in dense]
    self.compressed += len(dense)
    self.passed += len(others)
    if others:
      logging.log_first_n(
        logging.WARNING,
        'CompressedReduce: %d tensors pass as they are, which are no gradients '
        'of an optimizer of Keras, or are gradients of some rows.',
        1,
        len(others),
      )
    reduced = super().batch_reduce_implementation(
      reduce_op, [pairs[i] for i in others], options
    )
    found = dict(zip(others, reduced, strict=True))
    if dense:
      sums = self._sums([pairs[i][0] for i in dense], asked.only(dense))
      found |= zip(dense, sums, strict=True)
    return [found[i] for i in range(len(pairs))]

  def _sums(self, values, asked):
    """The sums of gradients of all replicas."""
    strategy = tf.distribute.get_strategy()
    own = [
      _of_all(compressors.checked(g, spec) for g in value.values)
      for spec, value in zip(asked.variables.specs, values, strict=True)
    ]
    step = tf.cast(tf.identity(asked.step), tf.int64)
    steps = _of_all([step] * strategy.num_replicas_in_sync)
    merged = self._compressor.merged(
      asked.variables, False, strategy, own, steps
    )
    sums = [of_replica.values for of_replica in merged]
    return [
      distribute_utils.regroup(
        tuple(tf.cast(s, value.values[0].dtype) for s in of_replicas),
        wrap_class=distributed.Mirrored,
      )
      for value, of_replicas in zip(
        values, zip(*sums, strict=True), strict=True
      )
    ]


def _of_all(tensors):
  return distributed.PerReplica(tuple(tensors))


class _Asked(NamedTuple):
  """What an optimizer asks for: `policy.Variables`, and its step."""

  variables: policy.Variables
  step: object

  def only(self, indices):
    return self._replace(variables=self.variables.only(indices))


# While an optimizer asks, what for. All replicas wait for the one that is
# heard, in threads of their own.
_asked = None


def _mark():
  """Lets Keras's optimizers say what they ask for; once."""
  owner = next(
    c
    for c in keras.optimizers.Optimizer.__mro__
    if wrapping.REPLACED in vars(c)
  )
  stock = vars(owner)[wrapping.REPLACED]
  if hasattr(stock, '__wrapped__'):
    return

  @functools.wraps(stock)
  def marked(self, grads_and_vars):
    global _asked
    pairs = list(grads_and_vars)
    variables = [v for g, v in pairs if g is not None]
    _asked = _Asked(optimizers.known(self, variables), self._iterations)
    try:
      return stock(self, pairs)
    finally:
      _asked = None

  setattr(owner, wrapping.REPLACED, marked)
