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

_EXCHANGES, _UPDATES, _CORRECTION = 'exchanges', 'updates', 'correction'
_NO_STATE = -1


class OuterState:
  """The outer step, the pending change and the number of exchanges.

  Attributes:
    step: parameters, slots and codec states.
    pending: a mean that is applied at the next exchange.
    correction: what the next exchange adds to the statistics; float32.
    exchanges: number of exchanges so far.
    updates: number of updates that this process's slots have seen. It differs
      from the exchanges with an overlap, and after changes with NaN or
      infinity.
  """

  def __init__(
    self,
    options: options_lib.LocalOptions,
    step: outer_step.OuterStep,
    statistics: Sequence[Sequence[int]],
  ) -> None:
    """Takes the options, the step and the shapes of the statistics."""
    self.step, self.pending = step, overlaps.NOTHING
    self.correction = [np.zeros(shape, np.float32) for shape in statistics]
    self.exchanges, self.updates = _NO_STATE, 0
    self._options = options

  def load(self, states: Mapping[str, np.ndarray]) -> None:
    """Loads the result of `states`, of this or another process."""
    self.exchanges = int(states[_EXCHANGES])
    # Older states have no number of updates.
    self.updates = int(states.get(_UPDATES, self.exchanges))
    self.step.load(states)
    self.pending = overlaps.load(states, len(self.step.parameters))
    self.correction = [
      np.asarray(states.get(f'{_CORRECTION}:{index}', zeros))
      for index, zeros in enumerate(self.correction)
    ]

  def states(self) -> dict[str, np.ndarray]:
    """Returns all arrays by name."""
    corrections = {
      f'{_CORRECTION}:{index}': array
      for index, array in enumerate(self.correction)
    }
    counts = {
      _EXCHANGES: np.array(self.exchanges),
      _UPDATES: np.array(self.updates),
    }
    return self.step.states() | self.pending.states() | corrections | counts

  def settle(self) -> None:
    """Notes that all changes are applied."""
    self.pending = overlaps.NOTHING
    self.correction = [np.zeros_like(array) for array in self.correction]

  def agree(
    self,
    members: members_lib.Members,
    values: Sequence[np.ndarray],
    rejoins: bool,
  ) -> bool:
    """Agrees with the other processes on the state to start from.

    Without states all start from the parameters of process 0. If a process
    joins again after a loss, all take the state of the process with the most
    exchanges, except codec states of workers.

    Args:
      members: the processes.
      values: the parameters of this process.
      rejoins: whether this process has exchanged before.

    Returns:
      False if each process goes on from its restored state.

    Raises:
      errors.ConfigError: the processes restored states of different exchanges.
    """
    rows = members.gather(self.exchanges, int(rejoins), self.updates)
    counts, latest = rows[:, 0], int(rows[:, 0].max())
    is_restored = bool((counts == latest).all()) and latest != _NO_STATE
    if latest == _NO_STATE:
      self.step.assign(values)
      members.broadcast(self.step.parameters)
    elif not is_restored and not rows[:, 1].any():
      raise errors.ConfigError(
        'Local steps: expected states of the same exchange in all processes, '
        f'received {", ".join(map(str, counts))} exchanges (-1: no state). '
        'Restore checkpoints of the same epoch in all processes.'
      )
    elif not is_restored:
      source = int(counts.argmax())
      self._adopt(members, source)
      self.updates = int(rows[source, 2])
    self.exchanges = max(0, latest)
    return not is_restored

  def _adopt(self, members: members_lib.Members, source: int) -> None:
    """Takes the state of process `source`, except codec states of workers."""
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
    members.broadcast([*shared, *means, *local], source)
    codec.restart_from_means()
    self.pending = overlaps.PendingChange(
      [v.read_value() for v in means], [v.read_value() for v in local]
    )
