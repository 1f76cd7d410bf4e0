"""Hooks of the training loop in a run with parameter servers."""

import contextlib
import itertools

from terngrad.checkpoint import digests
from terngrad.cluster import watchdog
from terngrad.config import servers
from terngrad.parameter_server import server_tasks
from terngrad.parameter_server import staleness
from terngrad.training import execution
from terngrad.training import metrics


class ServerHooks(execution.Hooks):
  """Hooks of the chief's loop in a run with parameter servers.

  Attributes:
    check: compares the replicas of all tasks before every checkpoint; None in
      asynchronous runs.
  """

  log_every = server_tasks.LOG_EVERY

  def __init__(
    self,
    cluster: servers.ServerClusterOptions,
    run: servers.ServerRunOptions,
    tally: staleness.Tally | None = None,
  ) -> None:
    """Sets the time limits and the intervals from the chief's options.

    `tally` counts stale gradients; None if every update waits for all workers.
    """
    super().__init__(cluster.tasks, 2 * cluster.step_timeout)
    self._options = cluster
    self._tally = tally
    # The first two blocks include compilation, so their limit is twice as long.
    # An asynchronous update waits for a push, which has a separate limit, and
    # then for the servers, so its limit stays twice as long.
    later = self._seconds if tally else cluster.step_timeout
    self._limits = itertools.chain([self._seconds] * 2, itertools.repeat(later))
    self.check: digests.Check | None = None
    self.save_secs = run.save_interval_secs
    self.observe_secs = run.save_summaries_secs

  def time_limit(self, what: str) -> contextlib.AbstractContextManager[None]:
    """Context that ends the process after --step_timeout, or twice as much."""
    return watchdog.limit(self._options.tasks, next(self._limits), what)

  def local_time_limit(
    self, what: str
  ) -> contextlib.AbstractContextManager[None]:
    """Limits the time of local work, which may wait for other tasks too."""
    return watchdog.limit(self._options.tasks, self._seconds, what)

  def line(self, step: int, values: dict[str, float]) -> str:
    """Formats the chief's log lines; synchronous runs leave out staleness."""
    count = len(self._options.tasks.jobs['worker'])
    return server_tasks.chief_line(
      count,
      step,
      values,
      batches=count / self._options.aggregate,
      without=('staleness',) if self._options.sync else (),
    )

  def before_save(self) -> None:
    """Raises `errors.TrainingError` if replicas differ."""
    if self.check:
      self.check.run()

  def measure(self) -> metrics.Arrivals | None:
    """Returns the stale gradients since the last record, and resets them.

    None if every update waits for all workers.
    """
    return self._tally.take() if self._tally else None
