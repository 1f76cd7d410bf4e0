"""The work of a helper: it answers the requests of its training process.

The training process waits for an answer, not for what follows it: with an
overlap the exchange, and always the copy of the state, from which a new helper
continues if this one is lost.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad.codec import policy
from terngrad.local import channel as channels
from terngrad.local import members as members_lib
from terngrad.local import options as options_lib
from terngrad.local import outer_state
from terngrad.local import outer_step
from terngrad.local import overlaps
from terngrad.local import shared_memory


class HelperServer:
  """Answers requests; see `serve`."""

  def __init__(
    self,
    options: options_lib.LocalOptions,
    values: dict[str, Any],
    channel: channels.Channel,
    descriptors: Sequence[int],
  ) -> None:
    """Joins the other helpers, agrees on the state and reports both.

    Args:
      options: of the run.
      values: names and shapes of the parameters, `specs`; shapes of the
        `statistics`; the `members` and the `rank` of this process; the number
        of the `restored` file of states, or None; `rejoins`, True if a helper
        of this process has exchanged before.
      channel: to the training process.
      descriptors: of the shared arrays and of two files for states.
    """
    specs = [policy.VariableSpec(n, tuple(s)) for n, s in values['specs']]
    shapes = [*(spec.shape for spec in specs), *values['statistics']]
    self._overlap, self._channel, self._count = (
      options.overlap,
      channel,
      len(specs),
    )
    self._arrays = shared_memory.SharedArrays(shapes, descriptors[0])
    self._files = descriptors[1:]
    self._members = members_lib.Members(
      *(values['members'], values['rank'], options.lost_after),
      options_lib.shared_fields(options, values['specs'], values['statistics']),
    )
    self._channel.write(joined=self._members.count)
    self._step = outer_step.OuterStep(options, specs, self._members.exchange)
    self._state = outer_state.OuterState(options, self._step, self._statistics)
    # Figures of the last exchange, for the metrics of the training process.
    self._figures: dict[str, Any] = {}
    # Number of the file with the last state.
    self._file = values['restored'] or 0
    if values['restored'] is not None:
      self._state.load(shared_memory.read_states(self._files[self._file]))
    changes = self._state.agree(self._members, self._inputs, values['rejoins'])
    self._answer(self._state.statistics, assign=changes)
    self._save()

  @property
  def _inputs(self) -> list[np.ndarray]:
    return self._arrays.inputs[: self._count]

  @property
  def _statistics(self) -> list[np.ndarray]:
    return self._arrays.inputs[self._count :]

  def serve(self) -> None:
    """Answers requests until training ends or the group of helpers changes."""
    while True:
      request = self._channel.receive()
      if request['do'] == channels.FINISH:
        self._finish(request['has_steps'])
        self._save()
        return
      if request['exchanges'] < self._state.exchanges:
        # The others completed this exchange before a process was lost.
        self._state.clear_correction()
        self._answer(self._state.statistics)
      elif self._overlap == options_lib.NONE:
        if not self._exchange():
          return
      elif not self._exchange_in_background():
        return
      self._save()

  def _exchange(self) -> bool:
    """Exchanges changes, then answers; False if a process has finished."""
    if not self._are_all(channels.EXCHANGE):
      return False
    # States of a run with an overlap may have a pending change.
    changes, pending = self._step.changes(self._inputs), self._state.pending
    statistics = self._state.correct(self._local_statistics())
    self._apply(pending.rest())
    is_finite = self._reduce(changes, [])
    self._apply(self._state.pending.rest())
    self._state.settle()
    self._state.exchanges += 1
    self._average(statistics, is_finite)
    self._answer(self._state.statistics)
    return True

  def _exchange_in_background(self) -> bool:
    """Answers, then exchanges changes; False if a process has finished."""
    changes, state = self._step.changes(self._inputs), self._state
    statistics = self._local_statistics()
    local = self._local_share(changes)
    self._apply(overlaps.add(local, state.pending.rest()))
    self._answer(state.correct(statistics), coming=1)
    if not self._are_all(channels.EXCHANGE):
      return False
    self._average(statistics, self._reduce(changes, local))
    pairs = zip(state.statistics, statistics, strict=True)
    state.correction = [mean - value for mean, value in pairs]
    state.exchanges += 1
    return True

  def _finish(self, has_steps: bool) -> None:
    """Applies all changes, so that the processes end with equal parameters."""
    statistics = self._state.correct(self._local_statistics())
    if self._are_all(channels.FINISH, has_steps):
      pending, is_finite = self._state.pending.rest(), True
      if self._any_has_steps:
        changes = self._step.changes(self._inputs)
        local = self._local_share(changes)
        self._apply(overlaps.add(local, pending))
        is_finite = self._reduce(changes, local)
        self._state.exchanges += 1
        pending = self._state.pending.rest()
      self._apply(pending)
      self._state.settle()
      if self._overlap == options_lib.EAGER:
        self._members.broadcast(self._step.parameters)
      self._average(statistics, is_finite)
      statistics = self._state.statistics
      self._members.barrier()
    self._answer(statistics)

  def _are_all(self, request: str, has_steps: bool = True) -> bool:
    """Compares the requests; reports the processes that have finished."""
    number = channels.REQUESTS.index(request)
    rows = self._members.gather(number, int(has_steps))
    are_equal = bool((rows[:, 0] == number).all())
    self._any_has_steps = bool(rows[:, 1].any())
    if request == channels.EXCHANGE and not are_equal:
      finished = np.flatnonzero(rows[:, 0] != number).tolist()
      self._channel.write(finished=finished)
    return are_equal

  def _local_share(self, changes: list[tf.Tensor]) -> list[tf.Tensor]:
    return overlaps.local_share(self._overlap, changes, self._members.count)

  def _local_statistics(self) -> list[np.ndarray]:
    """Copies the statistics of this process.

    If its arrays have NaN or infinity, it takes those agreed on last instead.
    """
    if all(np.isfinite(array).all() for array in self._arrays.inputs):
      return [array.copy() for array in self._statistics]
    self._state.clear_correction()
    return self._state.statistics

  def _average(self, statistics: list[np.ndarray], is_finite: bool) -> None:
    """Averages the statistics; NaN or infinity leaves them unchanged."""
    means = self._members.mean(statistics)
    if is_finite and all(np.isfinite(mean).all() for mean in means):
      self._state.statistics = means

  def _reduce(self, changes: list[tf.Tensor], local: list[tf.Tensor]) -> bool:
    """Averages the changes and sets the pending change and the figures.

    Returns:
      Whether the changes of all workers are finite.
    """
    started = time.monotonic()
    mean = self._step.reduce(changes, self._state.exchanges)
    means = mean.means if mean.is_finite else []
    self._state.pending = overlaps.PendingChange(means, local)
    self._figures = {
      # One process sends nothing.
      'sent_bytes': mean.sent_bytes if self._members.count > 1 else 0,
      'exchange_seconds': time.monotonic() - started,
      'is_finite': mean.is_finite,
    }
    return mean.is_finite

  def _apply(self, gradients: list[tf.Tensor]) -> None:
    if gradients:
      self._step.apply(gradients, self._state.updates)
      self._state.updates += 1

  def _answer(
    self, statistics: Sequence[np.ndarray], coming: int = 0, **more: Any
  ) -> None:
    """Writes parameters and statistics for the training process.

    Args:
      statistics: float32.
      coming: 1 if the exchange that the answer is about is not complete.
      **more: values of the answer.
    """
    values = [v.numpy() for v in self._step.parameters]
    for array, value in zip(
      self._arrays.outputs, [*values, *statistics], strict=True
    ):
      array[...] = value
    exchanges = self._state.exchanges + coming
    self._channel.write(exchanges=exchanges, **self._figures, **more)
    self._figures = {}

  def _save(self) -> None:
    """Copies the state to one of two files and reports its number."""
    self._file = (self._file + 1) % len(self._files)
    shared_memory.write_states(self._files[self._file], self._state.states())
    self._channel.write(saved=self._file)
