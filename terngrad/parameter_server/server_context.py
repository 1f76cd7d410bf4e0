"""Where a run over parameter servers takes place that waits for all workers."""

from collections.abc import Iterator
from collections.abc import Sequence

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
    layout = layout._replace(feeds=[])
    hooks = server_hooks.ServerHooks(cluster, run, layout.num_processes)
    super().__init__(layout, data, layout.local_devices, hooks)
    self._server_hooks = hooks
    self._layout = layout
    self._feeds = feeds
    self._copies: Sequence[replicas.Replica] = ()

  def make_step(
    self, training: steps.Training, codec: gradients.GradientCodec
  ) -> steps.Step:
    """See `execution.ExecutionContext.make_step`."""
    self._copies = training.replicas
    return steps.TrainStep(training, codec)

  def batches(
    self, step: int, shares: Sequence[int] | None = None
  ) -> Iterator[batches.Batch]:
    """Lets all workers start from the chief's parameters and this step."""
    del shares  # all are equal
    first, *others = self._copies
    with self._server_hooks.time_limit('Begin'):
      for other in others:
        replicas.copy(first, other)
      self._server_hooks.check(self._copies)
      self._layout.feeds[:] = self._feeds.open(step)
      return self.data.batches(step)

  def join(self) -> None:
    """Nothing is under way when the loop ends."""
