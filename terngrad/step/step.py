"""One training step: gradients, codes, exchange, mean, update.

`Reducer.begin` computes the gradients of all workers, which then agree on a
probe. `Reducer.exchange` encodes them and sends the messages. On each device
`StepEnd` decodes the mean gradients and updates the replica.

The step is the same for the devices of one process, for processes with
collectives and for workers with parameter servers. They differ only in the
exchange.
"""

import abc
import contextlib
import functools
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import tracing
from terngrad.codec.stages import transport
from terngrad.exchange import device_groups
from terngrad.exchange import protocol
from terngrad.exchange import towers
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import metadata as metadata_lib
from terngrad.reduce import pending as pending_lib
from terngrad.reduce import programs
from terngrad.reduce import states as states_lib
from terngrad.step import device_passes
from terngrad.step import loss_scaling
from terngrad.step import optimizers
from terngrad.step import passes
from terngrad.step import replicas as replicas_lib
from terngrad.step import step_end
from terngrad.step import synchronized


class StepResult(NamedTuple):
  """Results of a step for the training loop.

  Attributes:
    entropy: float32 [workers], mean loss of each worker's examples.
    accuracy: float32 [workers], top-1 accuracy of the same examples, in [0, 1].
    probes: float32 [workers, probes]; not finite where a gradient is not.
    shared: float32 [probes], the agreed probe.
    words: for each device of this process its messages, float32 [workers of
      the device, words] for each part and round; see `transport`. [] for a
      device that helps another one; see `device_groups`.
    sent: int32 [workers of this process], how many words each sent.
    stop: float32 [], the largest signal number of all processes; see
      `Step.take`.
    worker_labels: name of each worker for logs; () for the indices.
    is_taken: bool [], False if nothing was updated; see
      `Training.skips_not_finite`.
  """

  entropy: tf.Tensor
  accuracy: tf.Tensor
  probes: tf.Tensor
  shared: tf.Tensor
  words: list[list[tf.Tensor]]
  sent: tf.Tensor
  stop: tf.Tensor
  worker_labels: tuple[str, ...] = ()
  is_taken: tf.Tensor | bool = True

  def payloads(self, device_index: int) -> tf.Tensor:
    """Joins all messages of a device, int32 [workers of the device, words]."""
    words = tf.concat(self.words[device_index], axis=1)
    return transport.to_int32(words)


def host_numbers(step: int, *numbers: float) -> list[tf.Tensor]:
  """Makes arguments of `Step.take` in the memory of the host.

  TensorFlow would place them on a GPU, and a copy to a GPU waits until it has
  finished the step before.

  Args:
    step: number of steps taken before.
    *numbers: the learning rate, the decay of averages, the number of a signal.

  Returns:
    The step, int64 [], and the numbers, float32 [].
  """
  with tf.device('/CPU:0'):
    return [
      tf.constant(step, tf.int64),
      *(tf.constant(number, tf.float32) for number in numbers),
    ]


class Training(NamedTuple):
  """What a step trains and on which devices.

  Attributes:
    node_pass: the forward and backward pass of a worker.
    exchange: connects the workers.
    replicas: one for each device of `exchange`.
    states: of the gradient methods and the pass.
    optimizer: applied once per step to each replica.
    seed: of the run.
    synchronization: synchronized batch normalization over the workers; None for
      local batch normalization.
    local: local steps of the workers between exchanges; a step exchanges one of
      its `fragments`. None: each step computes gradients of one batch.
    skips_not_finite: True skips the update of replicas and states in a step in
      which a loss or a gradient of any worker is not finite.
    compiles: True compiles a step that sends no messages; see `whole_step`.
  """

  node_pass: passes.Pass
  exchange: protocol.Exchange
  replicas: tuple[replicas_lib.Replica, ...]
  states: states_lib.MethodStates
  optimizer: optimizers.Optimizer
  seed: int
  synchronization: synchronized.Synchronization | None = None
  local: device_passes.LocalTraining | None = None
  skips_not_finite: bool = False
  compiles: bool = False

  def helpers_of(self, device_index: int) -> tuple[replicas_lib.Replica, ...]:
    """Returns the replicas of the other devices of a device's worker."""
    group = device_groups.group_of(self.exchange, device_index)
    return tuple(self.replicas[index] for index in group[1:])

  def context(
    self, device_index: int
  ) -> contextlib.AbstractContextManager[None]:
    """The context in which the passes of a device of `exchange` are traced."""
    if self.synchronization:
      return self.synchronization.context(device_index)
    return contextlib.nullcontext()


class Step(abc.ABC):
  """A training step."""

  @abc.abstractmethod
  def take(
    self,
    images: tf.Tensor,
    labels: tf.Tensor,
    step: tf.Tensor,
    learning_rate: tf.Tensor,
    averaging_decay: tf.Tensor,
    stop: tf.Tensor | float = 0.0,
  ) -> StepResult:
    """Takes one step and updates the replicas.

    Args:
      images: [workers of this process, b, ...].
      labels: int32 [workers of this process, b].
      step: int64 [], number of steps taken before.
      learning_rate: float32 [].
      averaging_decay: float32 [], decay of the moving averages of parameters.
      stop: float32 [], number of the signal that asks this process to stop; 0
        for none.
    """


class TrainStep(Step):
  """Gradients, codes, exchange, mean, update; traced at the first step."""

  def __init__(
    self, training: Training, codec: gradients_lib.GradientCodec
  ) -> None:
    """Prepares the reducer and the updates; traces nothing yet.

    Args:
      training: what is trained.
      codec: cut into parts or not, see `reduce.parts`. With the codec of a
        fragment the step updates only the parameters of that fragment.
    """
    self._training = training
    self._reducer = device_passes.reducer(
      codec,
      training.exchange,
      training.replicas,
      training.states.workers,
      training.node_pass,
      training.seed,
    )
    self._passes = [
      device_passes.DevicePasses(
        *(training.replicas[index], training.exchange.workers_of(index)),
        training.states.pass_states(index),
        functools.partial(training.context, index),
        training.helpers_of(index),
      )
      for index in device_groups.leading_devices(training.exchange)
    ]
    self._ends = [
      step_end.StepEnd(
        one,
        training.optimizer,
        training.node_pass.decoupled_decay,
        self._reducer.parts,
      )
      for one in training.replicas
    ]

  @tracing.function(reduce_retracing=True)
  def take(
    self,
    images: tf.Tensor,
    labels: tf.Tensor,
    step: tf.Tensor,
    learning_rate: tf.Tensor,
    averaging_decay: tf.Tensor,
    stop: tf.Tensor | float = 0.0,
  ) -> StepResult:
    """Takes one step and updates the replicas; see `Step.take`."""
    training, exchange = self._training, self._training.exchange
    update_rate, updates = self._update_numbers(step, learning_rate)
    seed = tf.constant(training.seed, tf.int64)
    batches = exchange.batches(images, labels)
    passes_of = self._worker_passes(learning_rate)
    each = list(zip(self._passes, passes_of, batches, strict=True))
    start = self._reducer.begin(
      [
        one.gradients_of(found, batch, seed, step) for one, found, batch in each
      ],
      [step] * len(exchange.devices),
      stop,
    )
    # Neither the exchange nor the update waits for this.
    for one, found, batch in each:
      found.compute_during_exchange(one, batch, seed, step)
    apply_states = self._apply_states(start.metadata)
    part_means = self._reducer.exchange(start, apply_states)
    numbers = updates, update_rate, averaging_decay
    for index, end in enumerate(self._ends):
      pending = [device_means[index] for device_means in part_means]
      statistics = start.metadata.statistics[index]
      if training.skips_not_finite:
        update = functools.partial(end, pending, statistics, numbers)
        tf.cond(apply_states[index], update, lambda: None)
      else:
        end(pending, statistics, numbers, apply_states[index])
    exchange.report(step, [one.scores[:, 0] for one in start.local.values()])
    return self._result(start.metadata, part_means, apply_states[0])

  def _update_numbers(
    self, step: tf.Tensor, learning_rate: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """(Learning rate of the update, number of updates before)."""
    local = self._training.local
    if not local:
      return learning_rate, step
    # Each variable is updated once in as many steps as there are fragments.
    updates = step // max(1, len(local.fragments))
    return tf.constant(local.outer_rate), updates

  def _worker_passes(self, learning_rate: tf.Tensor) -> list[passes.Pass]:
    """Makes the pass of the workers of each device that has workers."""
    node_pass, local = self._training.node_pass, self._training.local
    found = [one.on_all_devices(node_pass, bool(local)) for one in self._passes]
    return (
      [local.pass_at(one, learning_rate) for one in found] if local else found
    )

  def _apply_states(
    self, metadata: metadata_lib.Metadata
  ) -> list[tf.Tensor | None]:
    """Decides for each device whether states change, bool []; None for True.

    With loss scaling the update follows the same decision. It uses only
    metadata of all workers, so devices agree.
    """
    training = self._training
    device_probes = list(zip(*metadata.shared, strict=True))
    if not (training.skips_not_finite or training.replicas[0].scaling):
      return [None] * len(device_probes)
    count = training.exchange.num_workers
    # The sum of finite gradients may be infinite.
    return [
      loss_scaling.all_finite(
        [metadata.scores[:, 0], *(agreed * count for agreed in part_probes)]
      )
      for part_probes in device_probes
    ]

  def _result(
    self,
    metadata: metadata_lib.Metadata,
    part_means: list[list[pending_lib.PendingMean]],
    is_taken: tf.Tensor | None,
  ) -> StepResult:
    exchange, parts = self._training.exchange, self._reducer.parts
    totals = []
    for pending in zip(*part_means, strict=True):
      if not pending[0].workers:
        continue
      with tf.device(pending[0].device):
        totals.append(tf.add_n([sent for one in pending for sent in one.sent]))
    return StepResult(
      entropy=metadata.scores[:, 0],
      accuracy=metadata.scores[:, 1],
      probes=programs.join_probes(parts, metadata.probes),
      shared=programs.join_probes(parts, [one[0] for one in metadata.shared]),
      words=[
        [words for pending in part_means for words in pending[index].words]
        for index in exchange.local_devices
      ],
      sent=towers.order_by_worker(totals),
      stop=metadata.stop,
      is_taken=is_taken if self._training.skips_not_finite else True,
    )
