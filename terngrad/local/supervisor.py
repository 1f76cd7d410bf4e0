"""Keeps a helper running: starts the next one if a process is lost."""

import os
import time
import weakref
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from terngrad import errors
from terngrad.cluster import spec
from terngrad.local import channel as channels
from terngrad.local import helper_process
from terngrad.local import membership
from terngrad.local import options as options_lib
from terngrad.local import shared_memory

# Seconds before a helper is started again after it could not join.
_PAUSE = 1.0
# Seconds in which the helpers of processes that have found each other join. A
# helper has to import TensorFlow.
_JOIN_SECONDS = 120.0
_CHANGES = helper_process.HelperLost, helper_process.HelpersFinished


class Supervisor:
  """Sends requests to the helper of this process.

  Attributes:
    arrays: inputs and outputs of requests. Write inputs after `settle`.
    members: addresses of the processes that exchange.
    rank: index of this process in them.
    lost: addresses of those that the others have left out.
    shifts: what the next request adds to the arrays, because a new helper
      repeated the last one: the new outputs minus the earlier ones, which
      training went on with; [] for nothing. The caller clears them.
  """

  def __init__(
    self,
    options: options_lib.LocalOptions,
    cluster: spec.Cluster,
    specs: Sequence[tuple[str, Sequence[int]]],
    statistics: Sequence[Sequence[int]],
  ) -> None:
    """Makes the shared memory; `start` starts a helper.

    Args:
      options: of the run.
      cluster: of the training processes, whose addresses helpers use.
      specs: name and shape of each parameter.
      statistics: shape of each array of statistics.
    """
    shapes = [*(shape for _, shape in specs), *statistics]
    self.arrays = shared_memory.SharedArrays(shapes)
    self.members = cluster.jobs['worker']
    self.rank = cluster.index
    self.lost: set[str] = set()
    self._options, self._cluster = options, cluster
    self._values = {'specs': specs, 'statistics': statistics}
    self._files = [os.memfd_create('terngrad_states') for _ in range(2)]
    self._close_files = weakref.finalize(
      self, _close, [self.arrays.descriptor, *self._files]
    )
    # Number of the file with the last complete state; None without one.
    self._saved: int | None = None
    # The last request, whose state is not saved yet.
    self._unsaved: dict[str, Any] | None = None
    self._helper: helper_process.HelperProcess | None = None
    self.shifts: list[np.ndarray] = []

  def load(self, states: Mapping[str, np.ndarray]) -> None:
    """Sets the states from which `start` continues, from `states`."""
    shared_memory.write_states(self._files[0], states)
    self._saved = 0

  def start(self) -> dict[str, Any]:
    """Starts a helper, joins the others and returns its first answer.

    Raises:
      errors.ConfigError: the port of this process is in use, or options and
        shapes of two processes differ.
    """
    if self._continues:
      with errors.as_config_error():
        spec.check_port(self._cluster)
      self._leave_out_lost(is_first=True)
    try:
      return self._start(rejoins=False)
    except helper_process.HelperLost as lost:
      return self._restart(lost)

  def settle(self) -> None:
    """Waits until the state after the last request is saved.

    If a new helper repeats the request, this adds to `shifts`.
    """
    before: list[np.ndarray] = []
    while self._unsaved is not None:
      try:
        self._receive_saved()
      except _CHANGES as change:
        if self._unsaved['do'] == channels.FINISH:
          # Nothing continues from this state.
          self._unsaved = None
          break
        before = before or [array.copy() for array in self.arrays.outputs]
        request = self._unsaved
        self._restart(change)
        self._request(request)
    if before:
      pairs = zip(self.arrays.outputs, before, strict=True)
      shifts = [after - earlier for after, earlier in pairs]
      known = self.shifts or [np.zeros_like(shift) for shift in shifts]
      self.shifts = [a + b for a, b in zip(known, shifts, strict=True)]

  def request(self, **words: Any) -> dict[str, Any]:
    """Sends a request and returns the answer; `settle` first."""
    return self._request(words)

  def states(self) -> dict[str, np.ndarray]:
    """Waits for the last request and returns all arrays, for `load`."""
    self.settle()
    return (
      {}
      if self._saved is None
      else shared_memory.read_states(self._files[self._saved])
    )

  def end(self) -> None:
    """Ends the helper and frees the states."""
    self._end_helper()
    self._close_files()

  def _end_helper(self) -> None:
    if self._helper:
      self._helper.end()
      self._helper = None

  def _request(self, words: dict[str, Any]) -> dict[str, Any]:
    while True:
      try:
        return self._ask(words)
      except _CHANGES as change:
        self._restart(change)

  def _ask(self, words: dict[str, Any]) -> dict[str, Any]:
    helper = self._running()
    helper.write(**words)
    answer = helper.receive()
    self._unsaved = words
    return answer

  def _receive_saved(self) -> None:
    self._saved = self._running().receive()['saved']
    self._unsaved = None

  def _running(self) -> helper_process.HelperProcess:
    if self._helper is None:
      raise helper_process.HelperLost('no helper runs')
    return self._helper

  def _start(self, rejoins: bool) -> dict[str, Any]:
    text = options_lib.encode(
      self._options,
      **self._values,
      members=self.members,
      rank=self.rank,
      restored=self._saved,
      rejoins=rejoins,
    )
    self._helper = helper_process.HelperProcess(
      text, [self.arrays.descriptor, *self._files]
    )
    self._helper.wait_until_joined(_JOIN_SECONDS if self._continues else None)
    answer = self._helper.receive()
    self._receive_saved()
    return answer

  @property
  def _continues(self) -> bool:
    """Whether the others go on without a lost process."""
    continues = self._options.on_lost_worker == options_lib.CONTINUE
    return continues and len(self.members) > 1

  def _restart(self, change: Exception) -> dict[str, Any]:
    """Starts helpers until one has joined the processes that remain.

    Raises:
      errors.TrainingError: there is one process, so its helper failed.
    """
    while True:
      self._end_helper()
      if len(self.members) == 1:
        raise errors.TrainingError(
          f'Local steps: expected a running helper process, received: {change}.'
          ' Look for its messages above, and start the program again from the '
          'last checkpoint.'
        ) from change
      self._change_members(change)
      try:
        return self._start(rejoins=True)
      except helper_process.HelperLost as lost:
        change = lost
        time.sleep(_PAUSE)

  def _change_members(self, change: Exception) -> None:
    """Leaves out processes that have finished or, with CONTINUE, are lost."""
    count = len(self.members)
    if isinstance(change, helper_process.HelpersFinished):
      self._keep([r for r in range(count) if r not in change.ranks])
    if self._continues:
      # After the end of another one, too: some may take that for a loss.
      self._leave_out_lost()
    logging.warning(
      'Local steps: %s. A new helper process joins %d of %d processes%s.',
      *(change, len(self.members), count),
      '' if len(self.members) < count else ', when all run',
    )

  def _leave_out_lost(self, is_first: bool = False) -> None:
    """Finds the processes that remain."""
    before = self.members
    self._keep(membership.remaining(before, self.rank, is_first))
    self.lost |= {*before} - {*self.members}

  def _keep(self, ranks: Sequence[int]) -> None:
    """Leaves out all processes but these; this one is among them."""
    self.members = tuple(self.members[rank] for rank in ranks)
    self.rank = ranks.index(self.rank)


def _close(descriptors: Sequence[int]) -> None:
  for descriptor in descriptors:
    os.close(descriptor)
