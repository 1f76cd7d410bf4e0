"""The context of a synchronous run with parameter servers."""

from collections.abc import Iterator
from collections.abc import Sequence

from terngrad.checkpoint import digests
from terngrad.config import servers
from terngrad.exchange import device_groups
from terngrad.exchange import server as exchange
from terngrad.parameter_server import server_feeds
from terngrad.parameter_server import server_hooks
from terngrad.reduce import gradients
from terngrad.step import replicas
from terngrad.step import step as steps
from terngrad.training import batches
from terngrad.training import execution


class ServerContext(execution.ExecutionContext):
  """Context of a run whose steps wait for the gradients of all workers.

  The chief compares the configurations of all tasks before it connects them.
  """

  hooks: server_hooks.ServerHooks

  def __init__(
    self,
    cluster: servers.ServerClusterOptions,
    run: servers.ServerRunOptions,
    data: batches.Data,
    layout: exchange.Servers,
    feeds: server_feeds.Feeds,
    devices: tuple[str, ...],
  ) -> None:
    """Prepares a run from the options and the data of the chief's process.

    `batches` starts the workers. `layout` has the devices with workers,
    `devices` are all.
    """
    # `batches` fills the list before the first step is traced.
    self._open_feeds: list[exchange.Feed] = []
    layout = layout._replace(feeds=self._open_feeds)
    members = device_groups.make(layout, devices)
    super().__init__(members, data, server_hooks.ServerHooks(cluster, run))
    self._feeds = feeds
    self._replicas: Sequence[replicas.Replica] = ()

  def make_step(
    self, training: steps.Training, codec: gradients.GradientCodec
  ) -> steps.Step:
    """Makes the traced step that trains with a codec."""
    self._replicas = training.replicas
    return super().make_step(training, codec)

  def batches(
    self, step: int, shares: Sequence[int] | None = None
  ) -> Iterator[batches.Batch]:
    """Starts all workers after `step` completed steps.

    Copies the chief's parameters to all replicas.

    Returns:
      The chief's batches.
    """
    with self.hooks.time_limit('Start of the workers'):
      for other in self._replicas[1:]:
        replicas.copy(self._replicas[0], other)
      self.hooks.check = digests.Check(self._replicas)
      self._open_feeds[:] = self._feeds(step)
      return super().batches(step, shares)
