"""Reduces the gradients of all workers to their mean.

`Reducer.begin` runs the workers' passes and prepares their gradients for
coding. `Reducer.exchange` sends the messages, round after round. The result is
a `PendingMean` on each device, which is decoded when the update needs it.

Towers, collectives, parameter servers, Keras and custom training loops all use
this module. They differ only in the exchange and in the source of gradients.
"""

import itertools
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import device_groups
from terngrad.exchange import protocol
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import metadata as metadata_lib
from terngrad.reduce import pending as pending_lib
from terngrad.reduce import plain
from terngrad.reduce import programs as programs_lib
from terngrad.reduce import states as states_lib
from terngrad.reduce import weight_decay
from terngrad.reduce import worker_map


class WorkerGradients(NamedTuple):
  """Results of one worker's forward and backward pass.

  Attributes:
    gradients: float32, of all variables of the reducer.
    parameters: float32, the values of these variables. The reducer adds the
      gradients of their L2 terms; () if it adds none.
    scores: float32 [scores]; () if the metadata row has none.
    statistics: float32, the new moving statistics.
  """

  gradients: list[tf.Tensor]
  parameters: Sequence[tf.Tensor] = ()
  scores: tf.Tensor | tuple[()] = ()
  statistics: Sequence[tf.Tensor] = ()


class ReducerOptions(NamedTuple):
  """Options of a `Reducer`; the defaults reduce given gradients.

  Attributes:
    row: the metadata that each worker sends beside its probe.
    decay: the L2 terms of the parameters; None for none.
    variables: for each gradient the variable index in the keys of its states;
      None for the index of the gradient.
    compiles: False compiles nothing with XLA.
  """

  row: metadata_lib.Row = metadata_lib.Row()
  decay: weight_decay.WeightDecay | None = None
  variables: Sequence[int] | None = None
  compiles: bool = True


_DEFAULT = ReducerOptions()


class Reducer:
  """Reduces the gradients of all workers to their mean, step by step.

  Attributes:
    parts: groups of variables whose messages are sent together.
  """

  def __init__(
    self,
    codec: gradients_lib.GradientCodec,
    exchange: protocol.Exchange,
    states: Sequence[states_lib.DeviceStates],
    seed: int,
    options: ReducerOptions = _DEFAULT,
  ) -> None:
    """Prepares the programs of a worker; XLA compiles them at the first call.

    `states` has the states of the codec's methods for each device.

    Raises:
      TypeError: the exchange has `own` of 0.2 in place of `num_local_workers`.
    """
    if not hasattr(exchange, 'num_local_workers'):
      raise TypeError(
        'exchange: expected num_local_workers, whose name was own until '
        f'terngrad 0.2, received a {type(exchange).__name__} without it. '
        'Rename the attribute of this class.'
      )
    self._exchange = exchange
    self._seed = seed
    self._row = options.row
    self.parts = programs_lib.parts(codec, options.decay, options.compiles)
    self._is_plain = [
      plain.adds_directly(part.codec, exchange) for part in self.parts
    ]
    # For each part and device.
    self._states = []
    for part in self.parts:
      variables: Sequence[int] = part.indices
      if options.variables is not None:
        variables = [options.variables[i] for i in variables]
      self._states.append(
        [states_lib.PartStates(part.codec, variables, one) for one in states]
      )

  def begin(
    self,
    gradients_of: Sequence[Callable[[tf.Tensor], WorkerGradients]],
    steps: Sequence[tf.Tensor],
    stop: tf.Tensor | float = 0.0,
  ) -> pending_lib.StepStart:
    """Computes the gradients of all workers and agrees on the probe.

    On a device the workers run one after the other: pass, `begin` and `carry`
    of one worker end before the pass of the next begins. Runs eagerly or in a
    `tf.function`.

    Args:
      gradients_of: for each device that has workers a function of a worker's
        index, int32 [].
      steps: for each device int64 [], number of steps taken before.
      stop: float32 [], number of the signal that asks this process to stop; 0
        for none.
    """
    seed = tf.constant(self._seed, tf.int64)
    count = self._exchange.num_workers
    all_steps = [gradients_lib.WorkerStep(seed, step, count) for step in steps]
    leading = device_groups.leading_devices(self._exchange)
    local = {
      index: self._begin_device(index, one, all_steps[index])
      for index, one in zip(leading, gradients_of, strict=True)
    }
    metadata = metadata_lib.gather(
      self._exchange, self._row, list(local.values()), stop
    )
    return pending_lib.StepStart(local, metadata, all_steps)

  def _begin_device(
    self,
    index: int,
    gradients_of: Callable[[tf.Tensor], WorkerGradients],
    step: gradients_lib.WorkerStep,
  ) -> metadata_lib.Local:
    """Runs the passes of a device's workers and prepares their gradients."""
    exchange = self._exchange
    device, workers = exchange.devices[index], exchange.workers_of(index)
    stacked = len(workers) > 1

    def begin(worker: tf.Tensor) -> list[tf.Tensor | list[tf.Tensor]]:
      results = gradients_of(worker)
      carried: list[tf.Tensor | list[tf.Tensor]] = []
      probes: list[tf.Tensor] = []
      node = worker_map.index_of(worker, workers)
      worker_step = step._replace(worker=worker)
      for part, states, is_plain in zip(
        self.parts, self._states, self._is_plain, strict=True
      ):
        given = (
          part.select(results.gradients),
          part.select(results.parameters),
        )
        if is_plain:
          gradients, probe = part.begin_plain(*given, worker_step)
          carried += gradients
        else:
          state = states[index].read(node)
          values, probe = part.begin(*given, state, worker_step)
          carry_step = worker_step._replace(local_probe=probe)
          values = part.carry(values, carry_step, stacked)
          carried += [value for (value,) in values] if stacked else values
        probes.append(probe)
      scores = tf.convert_to_tensor(results.scores, tf.float32)
      return [*carried, *probes, scores, *results.statistics]

    with tf.device(device):
      arrays = iter(
        worker_map.worker_map(device, workers, self._specs(), begin)
      )
      return metadata_lib.Local(
        [[next(arrays) for _ in specs] for specs in self._carried_specs()],
        [next(arrays).stack() for _ in self.parts],
        next(arrays).stack(),
        [array.stack() for array in arrays],
      )

  def _carried_specs(self) -> list[Sequence[worker_map.Spec]]:
    """For each part what a worker's `begin` returns, beside the probe."""
    return [
      plain.running_sums(part.codec)
      if is_plain
      else [(tf.float32, [n]) for _, n in part.codec.carried_sizes()]
      for part, is_plain in zip(self.parts, self._is_plain, strict=True)
    ]

  def _specs(self) -> list[worker_map.Spec]:
    """Describes each result of `_begin_device`, for one worker."""
    shapes = [
      *((part.codec.num_probes,) for part in self.parts),
      (self._row.num_scores,),
      *self._row.statistics,
    ]
    return [
      *itertools.chain(*self._carried_specs()),
      *((tf.float32, shape) for shape in shapes),
    ]

  def exchange(
    self, start: pending_lib.StepStart, apply_states: Sequence[tf.Tensor | None]
  ) -> list[list[pending_lib.PendingMean]]:
    """Sends all messages, round after round.

    No control dependencies connect the parts, so the messages of one part can
    travel while another part is still computed.

    Args:
      start: from `begin`.
      apply_states: for each device bool []; False skips the state update
        (loss-scale overflow). None is True.

    Returns:
      For each part one `PendingMean` per device.
    """
    exchange = self._exchange
    part_means: list[list[pending_lib.PendingMean]] = []
    for part, states in zip(self.parts, self._states, strict=True):
      if self._is_plain[part.number]:
        part_means.append([plain.PlainMean(exchange, part, start)])
        continue
      pending = [
        pending_lib.PendingMean(exchange, part, state, start, index, apply)
        for index, (state, apply) in enumerate(
          zip(states, apply_states, strict=True)
        )
      ]
      part_means.append(pending)
      for number in range(part.codec.num_rounds):
        payloads = []
        for one in pending:
          if not one.workers:
            continue
          with tf.device(one.device):
            (words,) = worker_map.worker_map(
              one.device, one.workers, [(tf.float32, None)], one.sender(number)
            )
            payloads.append(words.stack())
        combined = exchange.combine(part.codec.messages(number), payloads)
        sent = iter(payloads)
        for one, received in zip(pending, combined, strict=True):
          one.add(next(sent) if one.workers else None, received)
    return part_means
