"""A step whose gradients are on their way, and the mean that they become."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.exchange import protocol
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import metadata as metadata_lib
from terngrad.reduce import programs as programs_lib
from terngrad.reduce import states as states_lib
from terngrad.reduce import worker_map


class Begun(NamedTuple):
  """A step whose workers have computed, and agreed on probes.

  Attributes:
    local: of each device.
    metadata: of all workers.
    steps: for each device the step, without worker and probes.
  """

  local: list[metadata_lib.Local]
  metadata: metadata_lib.Metadata
  steps: list[gradients_lib.WorkerStep]


class PendingMean:
  """A part's messages on one device, before they are decoded.

  Attributes:
    device: its name.
    workers: those that live there.
    received: for each round what the exchange gave; see `GradientCodec.send`.
    words: for each round int32 [its workers, words], what they sent.
    sent: for each round int32 [its workers], how many of those were used.
  """

  def __init__(
    self,
    exchange: protocol.Exchange,
    part: programs_lib.Part,
    states: states_lib.OfPart,
    begun: Begun,
    device_index: int,
    apply_states: tf.Tensor | None,
  ) -> None:
    """Has received nothing yet.

    Args:
      exchange: between the workers.
      part: of the model.
      states: those of the part on the device.
      begun: the step.
      device_index: in `exchange.devices`.
      apply_states: bool [], False leaves states as they are; None for True.
    """
    self.device = exchange.devices[device_index]
    self.workers = exchange.workers_of(device_index)
    self.received: list[Sequence[methods.Received]] = []
    self.words: list[tf.Tensor] = []
    self.sent: list[tf.Tensor] = []
    self._part = part
    self._states = states
    local, number = begun.local[device_index], part.number
    self._carried = local.carried[number]
    self._probes = local.probes[number]
    self._apply = apply_states
    self.step = begun.steps[device_index]._replace(
      shared=begun.metadata.shared[number][device_index]
    )

  def sender(self, number: int) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """The function of a worker, int32 [], to its messages of a round."""

    def send(worker: tf.Tensor) -> list[tf.Tensor]:
      index, carried, step = self._of_worker(worker)
      words, states = self._part.send(
        number,
        carried,
        self._states.read(index),
        methods.received_by(worker, self.received),
        step,
      )
      self._states.write(index, states, self._apply)
      return [words]

    return send

  def add(self, words: tf.Tensor, received: Sequence[methods.Received]) -> None:
    """Keeps what was sent and received in the next round.

    Args:
      words: int32 [its workers, words].
      received: see `exchange.protocol.Exchange.combine`.
    """
    with tf.device(self.device):
      sent = self._part.codec.sent_words(words, len(self.sent))
    self.words.append(words)
    self.received.append(received)
    self.sent.append(sent)

  def means(self) -> list[tf.Tensor]:
    """The mean gradients, float32; states that depend on them change."""
    means, after = self._part.decode(
      self.received, self._states.read_shared(), self.step
    )
    self._states.write_shared(after, self._apply)

    def finish(worker: tf.Tensor) -> list[tf.Tensor]:
      index, carried, step = self._of_worker(worker)
      states = self._part.finish(carried, self._states.read(index), means, step)
      self._states.write(index, states, self._apply)
      return []

    if self._part.codec.finishes:
      with tf.device(self.device):
        worker_map.worker_map(self.device, self.workers, [], finish)
    return means

  def _of_worker(
    self, worker: tf.Tensor
  ) -> tuple[tf.Tensor, list[list[tf.Tensor]], gradients_lib.WorkerStep]:
    """(its index on the device, what it carries, its step)."""
    index = worker_map.index_of(worker, self.workers)
    carried = [array.read(index) for array in self._carried]
    carried = [one if isinstance(one, list) else [one] for one in carried]
    step = self.step._replace(worker=worker, own=self._probes[index])
    return index, carried, self._part.with_keys(step)
