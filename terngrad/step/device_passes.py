"""The passes of the workers of one device, which share a replica."""

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
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import metadata as metadata_lib
from terngrad.reduce import reducer as reducers
from terngrad.reduce import states as states_lib
from terngrad.reduce import worker_map
from terngrad.step import device_average
from terngrad.step import passes
from terngrad.step import replicas


class DevicePasses(NamedTuple):
  """The passes of one device's workers: its replica, workers and states.

  Attributes:
    replica: of the device.
    workers: indices of the workers on the device.
    memory: states of the pass, such as those of `local_steps`; empty if it has
      none.
    context: makes the context in which a pass is traced; see `synchronized`.
    helpers: the replicas of the other devices of a worker of several.
  """

  replica: replicas.Replica
  workers: range
  memory: states_lib.NodeStates = states_lib.NodeStates([])
  context: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
  helpers: tuple[replicas.Replica, ...] = ()

  def on_all_devices(
    self, node_pass: passes.Pass, is_local: bool
  ) -> passes.Pass:
    """Makes the pass that all devices of a worker compute.

    Args:
      node_pass: of the examples of one device.
      is_local: True if the worker has other parameters than the replicas.
    """
    if not self.helpers:
      return node_pass
    return device_average.DeviceAverage(
      node_pass, (self.replica, *self.helpers), is_local
    )

  def gradients_of(
    self,
    node_pass: passes.Pass,
    batch: protocol.DeviceExamples,
    seed: tf.Tensor,
    step: tf.Tensor,
  ) -> Callable[[tf.Tensor], reducers.WorkerGradients]:
    """Makes the function from a worker to its gradients, for `Reducer.begin`.

    The parameters are read once for all workers.

    Args:
      node_pass: of one worker.
      batch: the examples of the workers.
      seed: int64 [], of the run.
      step: int64 [], number of steps taken before.

    Returns:
      A function of a worker's index, int32 [].
    """
    with tf.device(self.replica.device):
      parameters = [tf.convert_to_tensor(v) for v in self.replica.trainable]
    non_trainable, scale = self.pass_arguments()

    def run(worker: tf.Tensor) -> reducers.WorkerGradients:
      key = random_bits.compiled_worker_key(seed, step, worker)
      arguments = (
        parameters,
        non_trainable,
        *batch.for_worker(worker),
        key,
        scale,
      )
      index = worker_map.index_of(worker, self.workers)
      states = {'memory': self.memory.read(index)} if self.memory else {}
      with self.context():
        gradients, scores, moments, *memory = node_pass.gradients(
          *arguments, **states
        )
      for values in memory:
        self.memory.write(index, values)
      return reducers.WorkerGradients(gradients, parameters, scores, moments)

    return run

  def pass_arguments(self) -> tuple[list[tf.Tensor], tf.Tensor | None]:
    """Reads (`non_trainable`, `scale`) for `passes.Pass.gradients`."""
    replica = self.replica
    with tf.device(replica.device):
      non_trainable = [
        tf.convert_to_tensor(v) for v in (*replica.statistics, *replica.frozen)
      ]
      scale = [tf.convert_to_tensor(v) for v in replica.scaling[:1]]
    return non_trainable, scale[0] if scale else None


def reducer(
  codec: gradients_lib.GradientCodec,
  exchange: protocol.Exchange,
  copies: Sequence[replicas.Replica],
  worker_states: Sequence[dict[states_lib.Key, list[tf.Variable]]],
  node_pass: passes.Pass,
  seed: int,
) -> reducers.Reducer:
  """Makes the reducer for the gradients of passes on replicas.

  The reducer adds the gradients of the L2 terms of `node_pass`. For each device
  of `exchange`, `copies` has the replica and `worker_states` the variables from
  `states.make_worker_variables`.
  """
  replica = copies[0]
  row = metadata_lib.Row(
    passes.NUM_SCORES,
    tuple(tuple(v.shape) for v in replica.statistics),
    replica.local_statistics,
  )
  states = [
    states_lib.DeviceStates(variables, one.shared)
    for variables, one in zip(worker_states, copies, strict=True)
  ]
  decay = node_pass.decay and node_pass.decay.on(replica.device)
  options = reducers.ReducerOptions(row, decay)
  return reducers.Reducer(codec, exchange, states, seed, options)


class LocalTraining(abc.ABC):
  """Local training steps between two exchanges; see `passes.local_steps`.

  Attributes:
    fragments: for each fragment the indices of its parameters; () if each
      exchange moves the whole model.
    outer_rate: learning rate of the update after the exchange.
  """

  fragments: tuple[tuple[int, ...], ...]
  outer_rate: float

  @abc.abstractmethod
  def pass_at(
    self, node_pass: passes.Pass, learning_rate: tf.Tensor
  ) -> passes.Pass:
    """Makes the pass of a step, which takes the local steps.

    Args:
      node_pass: of one batch.
      learning_rate: float32 [], of the local steps.
    """
