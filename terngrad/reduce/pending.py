"""Gradients between exchange and update: a mean that is not decoded yet."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import transport
from terngrad.exchange import protocol
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import metadata as metadata_lib
from terngrad.reduce import programs as programs_lib
from terngrad.reduce import states as states_lib
from terngrad.reduce import worker_map


class StepStart(NamedTuple):
  """A step whose workers have computed gradients and agreed on the probe.

  Attributes:
    local: the results of each device that has workers, by its index.
    metadata: of all workers.
    steps: for each device the step, without a worker and probes.
  """

  local: dict[int, metadata_lib.Local]
  metadata: metadata_lib.Metadata
  steps: list[gradients_lib.WorkerStep]


class PendingMean:
  """The messages of one part on one device, before they are decoded.

  Attributes:
    device: name of the device.
    workers: indices of the workers on the device; empty if it only receives.
    received: for each round the result of the exchange, as
      `GradientCodec.send` takes it.
    words: for each round float32 [workers of the device, words], the bits of
      the messages that they sent; see `transport`. Empty without workers.
    sent: for each round int32 [workers of the device], how many of these words
      must be sent. Empty without workers.
    step: without a worker, with the agreed probe.
  """

  def __init__(
    self,
    exchange: protocol.Exchange,
    part: programs_lib.Part,
    states: states_lib.PartStates,
    start: StepStart,
    device_index: int,
    apply_states: tf.Tensor | None,
  ) -> None:
    """Begins with no messages.

    `apply_states`, bool [], is False to skip the state update (loss-scale
    overflow); None is True.
    """
    self.device = exchange.devices[device_index]
    self.workers = exchange.workers_of(device_index)
    self.received: list[Sequence[methods.Received]] = []
    self.words: list[tf.Tensor] = []
    self.sent: list[tf.Tensor] = []
    self._part = part
    self._states = states
    number = part.number
    if self.workers:
      local = start.local[device_index]
      self._carried = local.carried[number]
      self._probes = local.probes[number]
    self._apply = apply_states
    self.step = start.steps[device_index]._replace(
      shared_probe=start.metadata.shared[number][device_index]
    )

  def sender(self, number: int) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """Makes the function from a worker, int32 [], to its messages."""

    def send(worker: tf.Tensor) -> list[tf.Tensor]:
      index, carried, step = self._worker_inputs(worker)
      words, states = self._part.send(
        number,
        carried,
        self._states.read(index),
        methods.received_by(worker, self.received),
        step,
      )
      self._states.write(index, states, self._apply)
      return [transport.to_float32(words)]

    return send

  def add(
    self, words: tf.Tensor | None, received: Sequence[methods.Received]
  ) -> None:
    """Appends the messages of one round.

    Args:
      words: float32 [workers of the device, words], sent; None without workers.
      received: the device's result of `exchange.protocol.Exchange.combine`.
    """
    self.received.append(received)
    if words is None:
      return
    with tf.device(self.device):
      sent = self._part.codec.sent_words(words, len(self.sent))
    self.words.append(words)
    self.sent.append(sent)

  def means(self) -> list[tf.Tensor]:
    """Decodes the float32 means and updates the states that depend on them."""
    means, after = self._part.decode(
      self.received, self._states.read_shared(), self.step
    )
    self._states.write_shared(after, self._apply)

    def finish(worker: tf.Tensor) -> list[tf.Tensor]:
      index, carried, step = self._worker_inputs(worker)
      states = self._part.finish(carried, self._states.read(index), means, step)
      self._states.write(index, states, self._apply)
      return []

    if self._part.codec.finishes and self.workers:
      with tf.device(self.device):
        worker_map.worker_map(self.device, self.workers, [], finish)
    return means

  def _worker_inputs(
    self, worker: tf.Tensor
  ) -> tuple[tf.Tensor, list[list[tf.Tensor]], gradients_lib.WorkerStep]:
    """(The worker's index on the device, carried gradients, step)."""
    index = worker_map.index_of(worker, self.workers)
    carried = [array.read(index) for array in self._carried]
    carried = [one if isinstance(one, list) else [one] for one in carried]
    step = self.step._replace(worker=worker, local_probe=self._probes[index])
    return index, carried, self._part.add_keys(step)
