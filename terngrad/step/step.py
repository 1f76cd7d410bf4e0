"""One training step: gradients, codes, exchange, mean, update.

The same for the devices of one process, for equal processes and for workers
with parameter servers: they differ in their exchange alone.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import towers
from terngrad.reduce import nodes
from terngrad.reduce import parts as parts_lib
from terngrad.reduce import rounds
from terngrad.reduce import states as states_lib
from terngrad.step import loss_scaling
from terngrad.step import passes
from terngrad.step import step_end


class StepResult(NamedTuple):
  """What a step tells the loop.

  Attributes:
    entropy: float32 [workers], mean loss of each worker's examples.
    accuracy: float32 [workers], top-1 accuracy of the same, as a share.
    probes: float32 [workers, probes]; not finite where a gradient was not.
    shared: float32 [probes], the agreed probe.
    words: for each device of this process a list of int32 [its workers, words],
      one a part: their messages, round after round.
    sent: int32 [workers of the exchange's `own`], how many words each sent.
    stop: float32 [], the largest wish to stop of all processes; see
      `make_train_step`.
    worker_labels: tuple of str, what to call the workers; () for by their
      numbers.
    is_taken: bool [], False where nothing was updated; see
      `Training.skips_not_finite`.
  """

  entropy: tf.Tensor
  accuracy: tf.Tensor
  probes: tf.Tensor
  shared: tf.Tensor
  words: list
  sent: tf.Tensor
  stop: tf.Tensor
  worker_labels: tuple = ()
  is_taken: tf.Tensor | bool = True

  def payloads(self, device_index):
    """The whole payloads of a device, int32 [its workers, words]."""
    return tf.concat(self.words[device_index], axis=1)


class Training(NamedTuple):
  """What a step trains, and where.

  Attributes:
    node_pass: `passes.Pass`.
    exchange: `exchange.towers.Towers` or another exchange.
    replicas: tuple of `replicas.Replica`, one a device of `exchange`.
    states: `states.MethodStates`.
    optimizer: `optimizers.Optimizer`, applied once a step to each replica.
    seed: integer, of the run.
    pass_context: takes a device index of `exchange`, returns the context of its
      passes; see `synchronized`.
    local: `local_steps.LocalSteps`, what workers do by themselves; of its
      `fragments` a step exchanges one. None: they compute gradients.
    skips_not_finite: True leaves replicas and states as they are in a step in
      which a loss or a gradient of any worker is not finite.
  """

  node_pass: passes.Pass
  exchange: object
  replicas: tuple
  states: object
  optimizer: object
  seed: int
  pass_context: Callable = lambda device_index: contextlib.nullcontext()
  local: object = None
  skips_not_finite: bool = False


def make_train_step(training, codec):
  """Builds the traced step.

  Args:
    training: `Training`.
    codec: `reduce.gradients.GradientCodec`, in parts or not; see
      `reduce.parts`. One of a fragment leaves all other parameters as they are.

  Returns:
    A function of (images [workers of this process, b, ...], labels int32 [the
    same, b], step int64 [], learning_rate float32 [], averaging_decay float32
    [], stop float32 [] or 0.0: the signal that asks this process to stop) that
    updates the replicas and returns a `StepResult`. To be traced.
  """
  exchange, replicas = training.exchange, training.replicas
  parts = parts_lib.parts(codec)
  functions = [
    nodes.functions(
      training.node_pass, part.codec, exchange.num_workers, part.indices
    )
    for part in parts
  ]
  devices = [
    nodes.Device(
      replica,
      exchange.workers_of(index),
      [
        states_lib.OfPart(part, training.states.workers[index], replica)
        for part in parts
      ],
      training.states.of_pass(index),
    )
    for index, replica in enumerate(replicas)
  ]
  ends = [
    step_end.StepEnd(
      replica,
      training.optimizer,
      training.node_pass.decoupled_decay,
      parts,
      functions,
    )
    for replica in replicas
  ]
  made = _Made(training, parts, functions, devices, ends)
  return functools.partial(_train_step, made)


def traced_step(training, codec, **changes):
  """The function of `make_train_step`, traced; `changes` are of `training`."""
  take = make_train_step(training._replace(**changes), codec)
  return tf.function(take, reduce_retracing=True)


class _Made(NamedTuple):
  """What all steps of a training share.

  Attributes:
    training: `Training`.
    parts: list of `reduce.parts.Part`.
    functions: list of `nodes.Functions`, of each part.
    devices: list of `nodes.Device`, one a device.
    ends: list of `step_end.StepEnd`, one a device.
  """

  training: Training
  parts: list
  functions: list
  devices: list
  ends: list


def _train_step(
  made, images, labels, step, learning_rate, averaging_decay, stop=0.0
):
  training, exchange = made.training, made.training.exchange
  seed_and_step = tf.constant(training.seed, tf.int64), step
  node_pass, rate, meanwhile = training.node_pass, learning_rate, None
  updates = step
  if training.local:
    node_pass, rate, meanwhile = training.local.of(node_pass, learning_rate)
    # Of each variable there is one in as many steps.
    updates = step // max(1, len(training.local.fragments))
  computed = []
  for index, batch in enumerate(exchange.batches(images, labels)):
    where = made.devices[index]
    with training.pass_context(index):
      computed.append(
        nodes.run_parts(node_pass, made.functions, where, batch, seed_and_step)
      )
      if meanwhile:
        # Nothing of the exchange, nor of the update, waits for this.
        meanwhile(where, batch, seed_and_step)
  own_statistics = training.replicas[0].own_statistics
  metadata = rounds.Metadata.of(exchange, computed, stop, own_statistics)
  # Only data tie the parts to each other, so that one is on its way while
  # others are computed.
  counts = _counts(training, metadata)
  exchanged = [
    rounds.exchange_part(
      exchange,
      part.codec,
      _work(made, number, computed, metadata, seed_and_step, counts),
    )
    for number, part in enumerate(made.parts)
  ]
  of_devices = list(zip(*exchanged, strict=True))
  numbers = updates, rate, averaging_decay
  for end, pending, statistics, is_taken in zip(
    made.ends, of_devices, metadata.statistics, counts, strict=True
  ):
    update = functools.partial(end, pending, statistics, numbers)
    if training.skips_not_finite:
      tf.cond(is_taken, update, lambda: None)
    else:
      update()
  exchange.report(step, [of_parts[0].scores[:, 0] for of_parts in computed])
  return StepResult(
    entropy=metadata.scores[:, 0],
    accuracy=metadata.scores[:, 1],
    probes=parts_lib.join_probes(made.parts, metadata.probes),
    shared=parts_lib.join_probes(
      made.parts, [one[0] for one in metadata.shared]
    ),
    words=[
      sum((part.words for part in of_devices[index]), [])
      for index in exchange.local_devices
    ],
    sent=_total(exchange, of_devices),
    stop=metadata.stop,
    is_taken=counts[0] if training.skips_not_finite else True,
  )


def _work(made, number, computed, metadata, seed_and_step, counts):
  """For each device the `rounds.Work` of a part."""
  return [
    rounds.Work(
      part=made.functions[number],
      states=where.states[number],
      computed=of_parts[number],
      where=where,
      shared=metadata.shared[number][index],
      seed_and_step=seed_and_step,
      counts=counts[index],
    )
    for index, (where, of_parts) in enumerate(
      zip(made.devices, computed, strict=True)
    )
  ]


def _counts(training: Training, metadata: rounds.Metadata) -> list:
  """For each device whether states change, bool [] or None; see `rounds.Work`.

  As the device knows it of all workers.
  """
  of_devices = list(zip(*metadata.shared, strict=True))
  if training.skips_not_finite:
    count = training.exchange.num_workers
    # Gradients that are finite may add up to infinity.
    return [
      loss_scaling.all_finite(
        [metadata.scores[:, 0], *(agreed * count for agreed in of_parts)]
      )
      for of_parts in of_devices
    ]
  if training.replicas[0].scaling:
    return list(map(loss_scaling.all_finite, of_devices))
  return [None] * len(of_devices)


def _total(exchange, of_devices):
  """int32 [workers]: words of all parts and rounds, counted where they are."""
  totals = []
  for device, parts in zip(exchange.devices, of_devices, strict=True):
    with tf.device(device):
      totals.append(tf.add_n(sum((part.sent for part in parts), [])))
  return towers.in_order(totals)
