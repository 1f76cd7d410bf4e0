"""The two halves of a reduction as separate programs: send and receive.

Measurements use them; training uses `reducer`.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import tracing
from terngrad.codec.stages import transport
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import programs as programs_lib


class Halves:
  """Send and receive programs of the first of N workers in its first step."""

  def __init__(
    self, codec: gradients_lib.GradientCodec, num_workers: int
  ) -> None:
    """Takes a codec that is not cut into parts; traces nothing yet."""
    self._codec = codec
    (self._part,) = programs_lib.parts(codec)
    self._states = [
      [state.first_value() for state in states] for states in codec.states()
    ]
    self._step = gradients_lib.WorkerStep(
      tf.constant(1, tf.int64), tf.constant(0, tf.int64), num_workers
    )

  @tracing.function
  def send(
    self, gradients: list[tf.Tensor], rows: Sequence[tf.Tensor]
  ) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Encodes the worker's messages of all rounds.

    Args:
      gradients: float32, in the order of the variables.
      rows: for each round float32 [N, words], the messages of all workers, as
        in `transport`.

    Returns:
      For each round float32 [words], and the agreed probe, float32 [probes]. It
      is the probe of this worker alone.
    """
    part, worker = self._part, tf.constant(0)
    step = self._step._replace(worker=worker)
    values, probe = part.begin(gradients, gradients, self._states, step)
    shared_probe = gradients_lib.agree(probe[tf.newaxis])
    step = step._replace(local_probe=probe)
    carried = part.carry(values, step, stacked=False)
    received = methods.received_by(worker, self._payloads(rows))
    step = part.add_keys(step._replace(shared_probe=shared_probe))
    words = []
    for number in range(self._codec.num_rounds):
      before = received[:number]
      sent, _ = part.send(number, carried, self._states, before, step)
      words.append(transport.to_float32(sent))
    return words, shared_probe

  @tracing.function
  def receive(
    self, rows: Sequence[tf.Tensor], shared_probe: tf.Tensor
  ) -> list[tf.Tensor]:
    """Decodes the mean gradients from the messages and probe of `send`."""
    step = self._step._replace(shared_probe=shared_probe)
    return self._part.decode(self._payloads(rows), self._states, step)[0]

  def _payloads(self, rows: Sequence[tf.Tensor]) -> methods.ReceivedRounds:
    return [
      methods.payloads(self._codec.messages(number), [methods.Piece(0, [row])])
      for number, row in enumerate(rows)
    ]
