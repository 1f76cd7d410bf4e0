"""The helpers that exchange, as one of them sees the others."""

import contextlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad import errors
from terngrad.cluster import coordination
from terngrad.cluster import devices
from terngrad.cluster import spec
from terngrad.codec.stages import tracing
from terngrad.exchange import collective
from terngrad.exchange import group as groups
from terngrad.exchange import towers


class Members:
  """The processes that exchange.

  Attributes:
    exchange: connects them.
    count: number of processes.
    rank: index of this one.
  """

  def __init__(
    self,
    addresses: Sequence[str],
    rank: int,
    lost_after: float,
    fields: Mapping[str, Any],
  ) -> None:
    """Joins the processes at these addresses; blocks until all have joined.

    Args:
      addresses: 'host:port' of all processes, by rank.
      rank: of this process.
      lost_after: seconds without a heartbeat after which a process is lost.
      fields: by name, what must be the same in all processes.

    Raises:
      errors.ConfigError: the port of this process is in use, or the fields of
        two processes differ.
    """
    self.count, self.rank = len(addresses), rank
    self.exchange: towers.Towers | collective.Collective
    if self.count == 1:
      self._group = None
      self.exchange = towers.Towers(devices.tower_devices(1), 1)
      return
    tasks = spec.make({'worker': addresses}, 'worker', rank)
    coordination.check_port(tasks)
    devices.configure(1)
    self._group = groups.Group(tasks, lost_after)
    self.exchange = collective.Collective(
      self._group, devices.tower_devices(1), self.count
    )
    coordination.assert_same(self.exchange, fields)

  def gather(self, *numbers: int) -> np.ndarray:
    """Gathers some integers of each process, int32 [processes, numbers]."""
    row = tf.constant([numbers], tf.int32)
    return np.asarray(row if self._group is None else self._gather(row))

  def mean(self, values: list[np.ndarray]) -> list[np.ndarray]:
    """Averages float32 arrays over the processes, in their order."""
    if self._group is None or not values:
      return values
    flat = np.concatenate([value.ravel() for value in values])
    rows = self._gather(tf.constant(flat[np.newaxis])).numpy()
    average = sum(rows[1:], rows[0]) / np.float32(self.count)
    ends = np.cumsum([value.size for value in values])[:-1]
    parts = np.split(average, ends)
    return [p.reshape(v.shape) for p, v in zip(parts, values, strict=True)]

  def broadcast(
    self,
    variables: Sequence[tf.Variable],
    source: int = 0,
    assigns: bool = True,
  ) -> None:
    """Assigns the values of process `source`, bit by bit.

    Args:
      variables: of this process.
      source: rank of the process that sends.
      assigns: False if this process keeps its values.
    """
    if self._group is None:
      return
    for variable in variables:
      bits = tf.bitcast(variable, tf.int32)
      # Adding integers to 0 rounds nothing.
      bits = bits if self.rank == source else tf.zeros_like(bits)
      bits = self._group.all_reduce(bits)
      if assigns:
        variable.assign(tf.bitcast(bits, variable.dtype))

  def barrier(self) -> None:
    """Waits until all processes have received everything.

    Afterwards a process may end, which the others may notice here.
    """
    with contextlib.suppress(*coordination.LOST_TASK_ERRORS):
      self.gather(0)

  @tracing.function
  def _gather(self, row: tf.Tensor) -> tf.Tensor:
    """Traced, so that the runtime has one collective for each shape."""
    if self._group is None:
      raise errors.TrainingError(
        'members: expected several processes that exchange, received one. Call '
        '`gather`, which returns the values of a single process.'
      )
    return self._group.all_gather(row)
