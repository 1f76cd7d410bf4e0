"""Where the devices of a training are, in this process and in others."""

from collections.abc import Sequence
from typing import Any

from terngrad.cluster import coordination
from terngrad.cluster import devices as devices_lib
from terngrad.config import cluster as clusters
from terngrad.config import options
from terngrad.exchange import collective
from terngrad.exchange import towers


def join(
  devices: Sequence[int | str],
  rendezvous: dict[str, Any] | clusters.Cluster | None = None,
) -> towers.Towers | collective.Collective:
  """Makes the exchange, a worker a device; blocks until all are there.

  Args:
    devices: numbers of GPUs, or of logical CPU devices on a machine without
      any, or names such as '/GPU:0'. One that is listed twice has two workers.
    rendezvous: None for this process alone; else a cluster, or its options.

  Raises:
    ValueError: there is no such option.
    errors.ConfigError: there is no such device, or the processes do not find
      each other.
  """
  if rendezvous is None:
    cluster = clusters.Cluster()
  elif isinstance(rendezvous, clusters.Cluster):
    cluster = rendezvous
  elif isinstance(rendezvous, dict):
    # Processes that meet are equal, unless they say otherwise.
    chosen = {'exchange': clusters.COLLECTIVE} | rendezvous
    cluster = options.build(clusters.Cluster, **chosen)
  else:
    raise ValueError(
      'rendezvous: expected None, a dict of options or a cluster, received '
      f"{rendezvous!r}. Use {{'cluster': 'tf_config'}}, for example."
    )
  names = devices_lib.named(devices)
  own = len(names)
  num_workers = own * cluster.num_processes
  return coordination.join(cluster, own, num_workers, names)
