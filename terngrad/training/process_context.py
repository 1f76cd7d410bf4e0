"""Where a run without parameter servers takes place: one of equal processes."""

import contextlib

from terngrad.cluster import coordination
from terngrad.cluster import spec
from terngrad.exchange import protocol
from terngrad.reduce import gradients
from terngrad.step import step as steps
from terngrad.step import synchronized
from terngrad.training import batches
from terngrad.training import execution


class ProcessHooks(execution.Hooks):
  """What the loop of one of equal processes does besides its steps."""

  def __init__(self, cluster: spec.Cluster | None, seconds: float) -> None:
    """Takes the tasks, None for one process, and the time for a wait."""
    self._cluster = cluster
    self._seconds = seconds

  def time_limit(self, what: str) -> contextlib.AbstractContextManager:
    """See `execution.Hooks.time_limit`."""
    return coordination.time_limit(self._cluster, self._seconds, what)


class ProcessContext(execution.ExecutionContext):
  """One of equal processes, or the only one."""

  def __init__(
    self,
    exchange: protocol.Exchange,
    data: batches.Data,
    hooks: execution.Hooks,
    synchronization: synchronized.Synchronization | None,
  ) -> None:
    """Takes what `assembly.of_this_process` made."""
    super().__init__(exchange, data, range(len(exchange.devices)), hooks)
    self._synchronization = synchronization

  def make_step(
    self, training: steps.Training, codec: gradients.GradientCodec
  ) -> steps.Step:
    """See `execution.ExecutionContext.make_step`."""
    training = training._replace(synchronization=self._synchronization)
    return steps.TrainStep(training, codec)

  def assert_same(self, chosen: dict[str, object], **built: object) -> None:
    """See `execution.ExecutionContext.assert_same`."""
    coordination.assert_same(self.exchange, chosen, **built)
