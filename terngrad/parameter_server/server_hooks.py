"""What the loop of a chief does besides its steps."""

import contextlib
import itertools
from collections.abc import Sequence

from terngrad.checkpoint import digests
from terngrad.cluster import watchdog
from terngrad.config import servers
from terngrad.parameter_server import server_tasks
from terngrad.parameter_server import staleness
from terngrad.step import replicas
from terngrad.training import execution
from terngrad.training import metrics


class ServerHooks(execution.Hooks):
  """Of a run that waits for all workers in every step."""

  log_every = server_tasks.LOG_EVERY

  def __init__(
    self, cluster: servers.ServerCluster, run: servers.ServerRun, processes: int
  ) -> None:
    """Limits nothing yet.

    Args:
      cluster: of the chief.
      run: says when to save.
      processes: worker processes.
    """
    self._cluster = cluster.tasks
    self._processes = processes
    self._own_seconds = seconds = 2 * cluster.step_timeout
    # What comes first is compiled meanwhile.
    self._limits = itertools.chain(
      [seconds] * 2, itertools.repeat(cluster.step_timeout)
    )
    self._check: digests.Check | None = None
    self.save_secs = run.save_interval_secs
    self.observe_secs = run.save_summaries_secs

  def time_limit(self, what: str) -> contextlib.AbstractContextManager:
    """See `execution.Hooks.time_limit`."""
    return watchdog.limit(self._cluster, next(self._limits), what)

  def own_limit(self, what: str) -> contextlib.AbstractContextManager:
    """See `execution.Hooks.own_limit`."""
    return watchdog.limit(self._cluster, self._own_seconds, what)

  def line(self, step: int, values: dict[str, float]) -> str:
    """The chief's lines."""
    return server_tasks.chief_line(self._processes, step, values)

  def check(self, copies: Sequence[replicas.Replica]) -> None:
    """Lets these replicas be compared before every checkpoint."""
    self._check = digests.Check(copies)

  def before_save(self) -> None:
    """Raises where replicas differ."""
    if self._check:
      self._check.run()


class AsyncHooks(execution.Hooks):
  """Of a run in which no update waits for all."""

  log_every = server_tasks.LOG_EVERY

  def __init__(
    self,
    cluster: servers.ServerCluster,
    run: servers.ServerRun,
    num_processes: int,
    tally: staleness.Tally,
  ) -> None:
    """Takes the tally of what comes late; see `Asynchronous`."""
    self._cluster = cluster
    self._num_processes = num_processes
    self._tally = tally
    self.save_secs = run.save_interval_secs
    self.observe_secs = run.save_summaries_secs

  def time_limit(self, what: str) -> contextlib.AbstractContextManager:
    """A limit of twice the time of a step; see `watchdog.limit`.

    A step of the loop waits for a push, which has a limit of its own, and then
    for the servers; the first ones of all wait for compilers.
    """
    seconds = 2 * self._cluster.step_timeout
    return watchdog.limit(self._cluster.tasks, seconds, what)

  def own_limit(self, what: str) -> contextlib.AbstractContextManager:
    """See `execution.Hooks.own_limit`."""
    return self.time_limit(what)

  def line(self, step: int, values: dict[str, float]) -> str:
    """The chief's lines: where none can be late, without staleness."""
    count = self._num_processes
    return server_tasks.chief_line(
      count,
      step,
      values,
      batches=count / self._cluster.aggregate,
      without=('staleness',) if self._cluster.sync else (),
    )

  def measure(self) -> metrics.Arrivals:
    """See `execution.Hooks.measure`."""
    return self._tally.take()
