"""The devices of an asynchronous run with parameter servers."""

from terngrad.exchange import server


class AsyncLayout(server.Servers):
  """The devices of the replicas of an asynchronous run.

  Device 0 represents all parameter servers. It has no workers and holds the
  parameters, slots and averages of the run. The devices of the workers follow.
  This class only maps workers to devices and exchanges nothing.
  """

  @property
  def devices(self) -> tuple[str, ...]:
    """Full name of the first server, then those of the workers' devices."""
    return (self.servers[0], *self.towers.devices)

  @property
  def local_devices(self) -> range:
    """Index of the servers' device, as a range."""
    return range(1)

  def workers_of(self, device_index: int) -> range:
    """Returns the workers on `devices[device_index]`."""
    tower_workers = self.towers.workers_of
    return tower_workers(device_index - 1) if device_index else range(0)

  def device_of(self, worker: int) -> int:
    """Returns 0: the servers hold the parameters of all workers."""
    del worker
    return 0
