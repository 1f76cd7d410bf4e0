"""Where the replicas are of a run in which no update waits for all."""

from typing import NamedTuple

from terngrad.exchange import server


class AsyncLayout(NamedTuple):
  """Where replicas are; see `exchange.towers.Towers`.

  Parameters, slots and averages of the run are the servers', the first device,
  which stands for all of them and has no workers. It says where things are and
  moves nothing: no `exchange.protocol.Exchange`.

  Attributes:
    layout: `exchange.server.Servers`.
  """

  layout: server.Servers

  @property
  def devices(self):
    """Of the servers, and then of the workers."""
    return (self.layout.servers[0], *self.layout.devices)

  @property
  def group(self):
    """None: see `Servers`."""
    return self.layout.group

  @property
  def num_workers(self):
    """Of all processes."""
    return self.layout.num_workers

  def workers_of(self, device_index):
    """The workers on `devices[device_index]`, as a range."""
    if not device_index:
      return range(0)
    return self.layout.workers_of(device_index - 1)

  def device_of(self, worker):
    """Where the parameters of a worker's updates are."""
    del worker
    return 0
