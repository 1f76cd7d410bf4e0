"""Where a run over parameter servers takes place that waits for all workers."""

from collections.abc import Iterator
from collections.abc import Sequence

from terngrad.checkpoint import digests
from terngrad.config import servers
from terngrad.exchange import server as exchange
from terngrad.parameter_server import server_feeds
from terngrad.parameter_server import server_hooks
from terngrad.reduce import gradients
from terngrad.step import replicas
from terngrad.step import step as steps
from terngrad.training import batches
from terngrad.training import execution


class ServerContext(execution.ExecutionContext):
  """A cluster whose chief waits for all workers in every step.

  Its tasks were compared before they were connected.
  """

  hooks: server_hooks.ServerHooks

  def __init__(
    self,
    cluster: servers.ServerCluster,
    run: servers.ServerRun,
    data: batches.Data,
    layout: exchange.Servers,
    feeds: server_feeds.Feeds,
  ) -> None:
    """Starts nothing.

    Args:
      cluster: of the chief.
      run: says when to save.
      data: of the chief's process.
      layout: who lives where.
      feeds: of the other workers.
    """
    # They are known before the first step is traced.
    self._opened: list[exchange.Feed] = []
    layout = layout._replace(feeds=self._opened)
    super().__init__(layout, data, server_hooks.ServerHooks(cluster, run))
    self._feeds = feeds
    self._copies: Sequence[replicas.Replica] = ()

  def make_step(
    self, training: steps.Training, codec: gradients.GradientCodec
  ) -> steps.Step:
    """See `execution.ExecutionContext.make_step`."""
    self._copies = training.replicas
    return super().make_step(training, codec)

  def batches(
    self, step: int, shares: Sequence[int] | None = None
  ) -> Iterator[batches.Batch]:
    """Lets all workers start from the chief's parameters and this step."""
    with self.hooks.time_limit('Begin'):
      for other in self._copies[1:]:
        replicas.copy(self._copies[0], other)
      self.hooks.check = digests.Check(self._copies)
      self._opened[:] = self._feeds(step)
      return super().batches(step, shares)
