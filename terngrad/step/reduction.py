"""Mean gradients, by the code of a step, of passes that others made.

A training step of `step` computes gradients, exchanges them and updates its
replicas. Where a loop of somebody else computes and updates, this is what is
between.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import towers
from terngrad.step import loss_scaling
from terngrad.step import nodes
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import rounds
from terngrad.step import states as states_lib


class Reduced(NamedTuple):
  """The mean gradients of a step, and what they cost.

  Attributes:
    means: for each device a list of float32, the same bits on all.
    sent: int32 [workers of this process], words that each sent.
    finite: for each device bool [], whether all gradients of all workers were.
    pending: for each device `rounds.PendingMean`.
  """

  means: list
  sent: tf.Tensor
  finite: list
  pending: list


class Reduction:
  """The exchange of some variables' gradients, step by step.

  Attributes:
    codec: `codec.gradients.GradientCodec` of them.
  """

  def __init__(self, exchange, part, states, seed):
    """Compiles a worker's side.

    Args:
      exchange: `exchange.towers.Towers` or another exchange.
      part: `codec.parts.Part` of the variables.
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

  def __call__(self, gradients, step, skips=False):
    """Reduces the gradients of all workers; to be traced or not.

    Args:
      gradients: for each device a function of a worker's number, int32 [], that
        returns the list of its float32 gradients.
      step: for each device int64 [], steps taken before.
      skips: True leaves all states alone in a step in which a gradient is not
        finite.

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
    finite = [loss_scaling.all_finite([agreed]) for agreed in shared]
    work = [
      rounds.Work(
        part=self._functions,
        states=where.states[0],
        computed=computed[index][0],
        where=where,
        shared=shared[index],
        seed_and_step=numbers[index],
        counts=finite[index] if skips else None,
      )
      for index, where in enumerate(self._devices)
    ]
    pending = rounds.exchange_part(exchange, self.codec, work)
    means, sent = [], []
    for device, one in zip(exchange.devices, pending, strict=True):
      with tf.device(device):
        means.append(one.means())
        sent.append(tf.add_n(one.sent))
    return Reduced(means, towers.in_order(sent), finite, pending)


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
