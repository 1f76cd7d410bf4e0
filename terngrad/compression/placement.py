"""Where the devices of a training are, in this process and in others."""

from terngrad.cluster import coordination
from terngrad.cluster import devices as devices_lib
from terngrad.config import cluster as clusters
from terngrad.config import options


def join(devices, rendezvous=None):
  """Makes the exchange, a worker a device; blocks until all are there.

  Args:
    devices: list of numbers of GPUs, or of logical CPU devices on a machine
      without any, or of names such as '/GPU:0'. One that stands twice has two
      workers.
    rendezvous: None for this process alone; else a `config.cluster.Cluster`, or
      a dict of its options.

  Returns:
    `exchange.towers.Towers` or `exchange.collective.Collective`.

  Raises:
    ValueError: there is no such option.
    errors.ConfigError: there is no such device, or the processes do not find
      each other.
  """
  cluster = _cluster(rendezvous)
  names = devices_lib.named(devices)
  own = len(names)
  num_workers = own * cluster.num_processes
  return coordination.join(cluster, own, num_workers, names)


def _cluster(rendezvous):
  """The `config.cluster.Cluster`; see `join`."""
  if rendezvous is None:
    return clusters.Cluster()
  if isinstance(rendezvous, clusters.Cluster):
    return rendezvous
  if not isinstance(rendezvous, dict):
    raise ValueError(
      'rendezvous: expected None, a dict of options or a cluster, received '
      f"{rendezvous!r}. Use {{'cluster': 'tf_config'}}, for example."
    )
  # Processes that meet are equal, unless they say otherwise.
  chosen = {'exchange': clusters.COLLECTIVE} | rendezvous
  return options.build(clusters.Cluster, **chosen)
