"""What the loop of a chief does besides its steps."""

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
  """Of a run with parameter servers.

  Attributes:
    check: of the replicas on all tasks, before every checkpoint, or None.
  """

  log_every = server_tasks.LOG_EVERY

  def __init__(
    self,
    cluster: servers.ServerCluster,
    run: servers.ServerRun,
    tally: staleness.Tally | None = None,
  ) -> None:
    """Limits nothing yet.

    Args:
      cluster: of the chief.
      run: says when to save.
      tally: of what comes late; None where every update waits for all.
    """
    super().__init__(cluster.tasks, 2 * cluster.step_timeout)
    self._options = cluster
    self._tally = tally
    # What comes first is compiled meanwhile. Where an update does not wait for
    # all, each waits for a push, which has a limit, and then for the servers.
    later = self._seconds if tally else cluster.step_timeout
    self._limits = itertools.chain([self._seconds] * 2, itertools.repeat(later))
    self.check: digests.Check | None = None
    self.save_secs = run.save_interval_secs
    self.observe_secs = run.save_summaries_secs

  def time_limit(self, what: str) -> contextlib.AbstractContextManager[None]:
    """See `execution.Hooks.time_limit`."""
    return watchdog.limit(self._options.tasks, next(self._limits), what)

  def own_limit(self, what: str) -> contextlib.AbstractContextManager[None]:
    """See `execution.Hooks.own_limit`."""
    return watchdog.limit(self._options.tasks, self._seconds, what)

  def line(self, step: int, values: dict[str, float]) -> str:
    """The chief's lines: where none can be late, without staleness."""
    count = len(self._options.tasks.jobs['worker'])
    return server_tasks.chief_line(
      count,
      step,
      values,
      batches=count / self._options.aggregate,
      without=('staleness',) if self._options.sync else (),
    )

  def before_save(self) -> None:
    """Raises where replicas differ."""
    if self.check:
      self.check.run()

  def measure(self) -> metrics.Arrivals | None:
    """See `execution.Hooks.measure`."""
    return self._tally.take() if self._tally else None
