"""Mean gradients, by the code of a step, of passes that others made.

A training step of `step` computes gradients, exchanges them and updates its
replicas. Where a loop of somebody else computes and updates, this is what is
between.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.exchange import towers
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import nodes
from terngrad.reduce import rounds
from terngrad.reduce import states as states_lib
from terngrad.step import passes
from terngrad.step import replicas


class Reduced(NamedTuple):
  """The mean gradients of a step, and what they cost.

  Attributes:
    means: for each device a list of float32, the same bits on all. All elements
      are NaN where a worker's gradient of that variable was not finite.
    sent: int32 [workers of this process], words that each sent.
    finite: for each device bool [variables], whether the gradients of each
      were, of all workers, and so is their sum.
    pending: for each device `rounds.PendingMean`.
  """

  means: list
  sent: tf.Tensor
  finite: list
  pending: list


class Reduction:
  """The exchange of some variables' gradients, step by step.

  Attributes:
    codec: `reduce.gradients.GradientCodec` of them.
  """

  def __init__(self, exchange, part, states, seed):
    """Compiles a worker's side.

    Args:
      exchange: `exchange.towers.Towers` or another exchange.
      part: `reduce.parts.Part` of the variables.
      states: for each device a pair: dict of `states.Key` to a list of
        variables, one a worker there; and dict of `states.Key` to the variable
        that all workers share.
      seed: integer, of the run.
    """
    self._exchange = exchange
    self.codec = part.codec
    self._seed = seed
    self._functions = nodes.functions(
      _given(part.codec, None), part.codec, exchange.num_workers
    )
    self._devices = []
    for index, device in enumerate(exchange.devices):
      workers, shared = states[index]
      replica = replicas.Replica(device, (), (), (), (), shared=shared)
      own = states_lib.OfPart(part, workers, replica)
      self._devices.append(
        nodes.Device(replica, exchange.workers_of(index), [own])
      )

  def __call__(self, gradients, step, others_finite=None):
    """Reduces the gradients of all workers; to be traced or not.

    A step in which a gradient is not finite leaves all states alone.

    Args:
      gradients: for each device a function of a worker's number, int32 [], that
        returns the list of its float32 gradients.
      step: for each device int64 [], steps taken before.
      others_finite: for each device bool [], whether the gradients are that
        others reduce in this step, alike on all devices; None for no others.

    Returns:
      `Reduced`.
    """
    numbers = [(tf.constant(self._seed, tf.int64), one) for one in step]
    computed = [
      nodes.run_parts(
        _given(self.codec, of_worker), [self._functions], where, _NUMBERS, pair
      )
      for of_worker, where, pair in zip(
        gradients, self._devices, numbers, strict=True
      )
    ]
    exchange = self._exchange
    metadata = rounds.Metadata.of(
      exchange, computed, tf.constant(0.0), own_statistics=False
    )
    (shared,) = metadata.shared
    finite, counts = [], []
    for index, device in enumerate(exchange.devices):
      with tf.device(device):
        # Gradients that are finite may add up to infinity.
        agreed = shared[index] * exchange.num_workers
        finite.append(_finite_variables(self.codec, agreed))
        counts.append(tf.reduce_all(finite[index]))
        if others_finite is not None:
          counts[index] &= others_finite[index]
    work = [
      rounds.Work(
        part=self._functions,
        states=where.states[0],
        computed=computed[index][0],
        where=where,
        shared=shared[index],
        seed_and_step=numbers[index],
        counts=counts[index],
      )
      for index, where in enumerate(self._devices)
    ]
    pending = rounds.exchange_part(exchange, self.codec, work)
    means, sent = [], []
    for index, device in enumerate(exchange.devices):
      with tf.device(device):
        means.append(_or_nan(finite[index], pending[index].means()))
        sent.append(tf.add_n(pending[index].sent))
    return Reduced(means, towers.in_order(sent), finite, pending)


def _finite_variables(
  codec: gradients_lib.GradientCodec, probe: tf.Tensor
) -> tf.Tensor:
  """Bool [variables], whether all numbers of each in a probe are."""
  _, rows = np.unique(codec.probed_variables(), return_inverse=True)
  strange = tf.cast(~tf.math.is_finite(probe), tf.int32)
  return tf.math.unsorted_segment_sum(strange, rows, codec.num_variables) < 1


def _or_nan(finite: tf.Tensor, means: list[tf.Tensor]) -> list[tf.Tensor]:
  """The means; NaN in those of variables whose gradients are not finite."""

  def marked() -> list[tf.Tensor]:
    pairs = zip(tf.unstack(finite), means, strict=True)
    return [tf.where(known, m, float('nan')) for known, m in pairs]

  # A branch: where all are finite, as nearly always, nothing is copied.
  return tf.nest.flatten(
    tf.cond(tf.reduce_all(finite), lambda: list(means), marked)
  )


class _Numbers:
  """The batch of a pass that wants nothing but the number of its worker."""

  def of(self, worker):
    return (worker,)


_NUMBERS = _Numbers()


def _given(codec, of_worker):
  """The `passes.Pass` of gradients that are there; see `Reduction`."""

  def gradients(parameters, held, worker, key):
    del parameters, held, key
    return of_worker(worker), tf.zeros([passes.NUM_SCORES]), []

  return passes.Pass(
    gradients=gradients,
    decay=lambda parameters: [None] * codec.num_variables,
    decoupled_decay=None,
    regularization=lambda parameters: tf.constant(0.0),
    num_statistics=0,
  )
