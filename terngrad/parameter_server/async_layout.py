"""Where the replicas are of a run in which no update waits for all."""

from terngrad.exchange import server


class AsyncLayout(server.Servers):
  """Where replicas are; see `exchange.towers.Towers`.

  Parameters, slots and averages of the run are the servers', the first device,
  which stands for all of them and has no workers. It says where things are;
  nothing is exchanged by it.
  """

  @property
  def devices(self) -> tuple[str, ...]:
    """Of the servers, and then of the workers."""
    return (self.servers[0], *self.towers.devices)

  @property
  def local_devices(self) -> range:
    """The servers'."""
    return range(1)

  def workers_of(self, device_index: int) -> range:
    """The workers on `devices[device_index]`, as a range."""
    own = self.towers.workers_of
    return own(device_index - 1) if device_index else range(0)

  def device_of(self, worker: int) -> int:
    """Where the parameters of a worker's updates are."""
    del worker
    return 0
