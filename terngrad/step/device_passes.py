"""The passes of the workers of one device, which share its replica."""

import abc
import contextlib
from collections.abc import Callable
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import random_bits
from terngrad.exchange import protocol
from terngrad.exchange import towers
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import metadata as metadata_lib
from terngrad.reduce import reducer as reducers
from terngrad.reduce import states as states_lib
from terngrad.reduce import worker_map
from terngrad.step import passes
from terngrad.step import replicas


class DevicePasses(NamedTuple):
  """A device, and what passes on it read and keep.

  Attributes:
    replica: of the device.
    workers: those that live there.
    memory: what a pass keeps from step to step, see `local_steps`; empty for
      passes that keep nothing.
    context: makes what a pass is traced in; see `synchronized`.
  """

  replica: replicas.Replica
  workers: range
  memory: states_lib.OfNodes = states_lib.OfNodes([])
  context: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext

  def gradients_of(
    self,
    node_pass: passes.Pass,
    batch: towers.Batch,
    seed: tf.Tensor,
    step: tf.Tensor,
  ) -> Callable[[tf.Tensor], reducers.WorkerGradients]:
    """The passes of a step, for `Reducer.begin`; reads the replica once.

    Args:
      node_pass: of one worker.
      batch: with the examples of the workers.
      seed: int64 [], of the run.
      step: int64 [], steps taken before.

    Returns:
      A function of a worker's number, int32 [].
    """
    with tf.device(self.replica.device):
      parameters = [tf.convert_to_tensor(v) for v in self.replica.trainable]
    held, scale = self.held()

    def run(worker: tf.Tensor) -> reducers.WorkerGradients:
      key = random_bits.worker_key(seed, step, worker)
      arguments = parameters, held, *batch.of(worker), key, scale
      index = worker_map.index_of(worker, self.workers)
      kept = {'memory': self.memory.read(index)} if self.memory else {}
      with self.context():
        gradients, scores, moments, *memory = node_pass.gradients(
          *arguments, **kept
        )
      for values in memory:
        self.memory.write(index, values)
      return reducers.WorkerGradients(gradients, parameters, scores, moments)

    return run

  def held(self) -> tuple[list[tf.Tensor], tf.Tensor | None]:
    """(`held` of `passes.Pass.gradients`, its `scale`)."""
    replica = self.replica
    with tf.device(replica.device):
      held = [
        tf.convert_to_tensor(v) for v in (*replica.statistics, *replica.frozen)
      ]
      scale = [tf.convert_to_tensor(v) for v in replica.scaling[:1]]
    return held, scale[0] if scale else None


def reducer(
  codec: gradients_lib.GradientCodec,
  exchange: protocol.Exchange,
  copies: Sequence[replicas.Replica],
  worker_states: Sequence[dict[states_lib.Key, list[tf.Variable]]],
  node_pass: passes.Pass,
  seed: int,
) -> reducers.Reducer:
  """The reducer of what passes on replicas give.

  Args:
    codec: of the replicas' parameters.
    exchange: between the workers.
    copies: the replicas, one a device of `exchange`.
    worker_states: for each device what `states.of_workers` made.
    node_pass: of one worker, whose L2 terms are added to its gradients.
    seed: of the run.
  """
  replica = copies[0]
  row = metadata_lib.Row(
    passes.NUM_SCORES,
    tuple(tuple(v.shape) for v in replica.statistics),
    replica.own_statistics,
  )
  states = [
    states_lib.DeviceStates(own, one.shared)
    for own, one in zip(worker_states, copies, strict=True)
  ]
  options = reducers.Options(row, node_pass.decay)
  return reducers.Reducer(codec, exchange, states, seed, options)


class LocalTraining(abc.ABC):
  """What workers do by themselves; see `passes.local_steps`.

  Attributes:
    fragments: for each fragment the tuple of its parameters' indices; () for
      none.
    outer_rate: the learning rate of the update after the exchange.
  """

  fragments: tuple[tuple[int, ...], ...]
  outer_rate: float

  @abc.abstractmethod
  def pass_at(
    self, node_pass: passes.Pass, learning_rate: tf.Tensor
  ) -> passes.Pass:
    """What workers do in a step.

    Args:
      node_pass: of one batch.
      learning_rate: float32 [], of the worker's own steps.
    """
