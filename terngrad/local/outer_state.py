"""The state that a helper has between two exchanges."""

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad import errors
from terngrad.local import members as members_lib
from terngrad.local import options as options_lib
from terngrad.local import outer_step
from terngrad.local import overlaps

_EXCHANGES, _UPDATES = 'exchanges', 'updates'
# Without slashes, which are groups in files of Keras.
_CORRECTION, _STATISTICS = 'correction', 'statistics'
_NO_STATE = -1


class OuterState:
  """The outer step, the pending change and the number of exchanges.

  Attributes:
    step: parameters, slots and codec states.
    pending: a mean that is applied at the next exchange.
    statistics: those that the processes agreed on last; float32.
    correction: what the next exchange adds to the local statistics; float32.
    exchanges: number of exchanges so far.
    updates: number of updates that this process's slots have seen. It differs
      from the exchanges with an overlap, and after changes with NaN or
      infinity.
  """

  def __init__(
    self,
    options: options_lib.LocalOptions,
    step: outer_step.OuterStep,
    statistics: Sequence[np.ndarray],
  ) -> None:
    """Takes the options, the step and the statistics of this process."""
    self.step, self.pending = step, overlaps.NOTHING
    self.statistics = [array.copy() for array in statistics]
    self.correction = [np.zeros_like(array) for array in statistics]
    self.exchanges, self.updates = _NO_STATE, 0
    self._options = options

  def load(self, states: Mapping[str, np.ndarray]) -> None:
    """Loads the result of `states`, of this or another process."""
    self.exchanges = int(states[_EXCHANGES])
    # Older states have no number of updates.
    self.updates = int(states.get(_UPDATES, self.exchanges))
    self.step.load(states)
    self.pending = overlaps.load(states, len(self.step.parameters))
    # Older states have no statistics.
    self.correction, self.statistics = (
      [
        np.asarray(states.get(f'{name}:{index}', array))
        for index, array in enumerate(arrays)
      ]
      for name, arrays in self._arrays()
    )

  def states(self) -> dict[str, np.ndarray]:
    """Returns all arrays by name."""
    found = {
      f'{name}:{index}': array
      for name, arrays in self._arrays()
      for index, array in enumerate(arrays)
    }
    counts = {
      _EXCHANGES: np.array(self.exchanges),
      _UPDATES: np.array(self.updates),
    }
    return self.step.states() | self.pending.states() | found | counts

  def _arrays(self) -> list[tuple[str, list[np.ndarray]]]:
    return [(_CORRECTION, self.correction), (_STATISTICS, self.statistics)]

  def settle(self) -> None:
    """Notes that all changes are applied."""
    self.pending = overlaps.NOTHING
    self.clear_correction()

  def clear_correction(self) -> None:
    """Lets the next exchange add nothing to the local statistics."""
    self.correction = [np.zeros_like(array) for array in self.correction]

  def correct(self, statistics: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Adds the correction to local statistics."""
    pairs = zip(statistics, self.correction, strict=True)
    return [value + correction for value, correction in pairs]

  def agree(
    self,
    members: members_lib.Members,
    values: Sequence[np.ndarray],
    rejoins: bool,
  ) -> bool:
    """Agrees with the other processes on the state to start from.

    Without states all start from parameters and statistics of process 0. If a
    process joins again after a loss, those with fewer exchanges take the state
    of the process with the most, except codec states of workers, and their
    correction is zero. With EAGER the others must keep theirs: their parameters
    have their own shares of the last change.

    Args:
      members: the processes.
      values: the parameters of this process.
      rejoins: whether this process has exchanged before.

    Returns:
      False if each process goes on from its restored state.

    Raises:
      errors.ConfigError: the processes restored states of different exchanges.
    """
    pending = [bool(tensors) for tensors in self.pending]
    rows = members.gather(
      self.exchanges, int(rejoins), self.updates, *map(int, pending)
    )
    counts, latest = rows[:, 0], int(rows[:, 0].max())
    is_restored = bool((counts == latest).all()) and latest != _NO_STATE
    if latest == _NO_STATE:
      self.step.assign(values)
      self._broadcast(members, self.step.parameters, 0, True)
    elif not is_restored and not rows[:, 1].any():
      raise errors.ConfigError(
        'Local steps: expected states of the same exchange in all processes, '
        f'received {", ".join(map(str, counts))} exchanges (-1: no state). '
        'Restore checkpoints of the same epoch in all processes.'
      )
    elif not is_restored:
      source, is_behind = int(counts.argmax()), self.exchanges < latest
      found = self._adopt(members, source, is_behind)
      if is_behind:
        self.updates = int(rows[source, 2])
        self.clear_correction()
        # Without a pending change the source sent zeros.
        kept = zip(found, rows[source, 3:], strict=True)
        self.pending = overlaps.PendingChange(
          *(tensors if is_there else [] for tensors, is_there in kept)
        )
    self.exchanges = max(0, latest)
    return not is_restored

  def _adopt(
    self, members: members_lib.Members, source: int, is_behind: bool
  ) -> overlaps.PendingChange:
    """Takes the state of process `source`, except those of workers.

    A process that is not behind sends and receives too, but keeps its state.

    Returns:
      The pending change that was received, zeros if the source has none.
    """
    zeros = [tf.zeros(v.shape) for v in self.step.parameters]
    overlap = self._options.overlap
    means: list[tf.Variable] = []
    local: list[tf.Variable] = []
    if overlap != options_lib.NONE:
      means = [tf.Variable(v) for v in self.pending.means or zeros]
    if overlap == options_lib.EAGER:
      local = [tf.Variable(v) for v in self.pending.local or zeros]
    codec = self.step.declare_codec_states()
    shared = [*self.step.shared, *codec.devices[0].shared.values()]
    self._broadcast(members, [*shared, *means, *local], source, is_behind)
    codec.restart_from_means()
    return overlaps.PendingChange(
      [v.read_value() for v in means], [v.read_value() for v in local]
    )

  def _broadcast(
    self,
    members: members_lib.Members,
    variables: Sequence[tf.Variable],
    source: int,
    assigns: bool,
  ) -> None:
    """Takes variables and statistics of process `source`, if it `assigns`."""
    statistics = [tf.Variable(array) for array in self.statistics]
    members.broadcast([*variables, *statistics], source, assigns)
    self.statistics = [variable.numpy() for variable in statistics]
