"""Devices and processes that a `ParallelModel` runs on."""

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
  rendezvous: dict[str, Any] | clusters.ClusterOptions | None = None,
) -> towers.Towers | collective.Collective:
  """Creates the exchange, one worker per device; blocks until all join.

  Args:
    devices: numbers of GPUs, or of logical CPU devices on a machine without
      GPU; or names such as '/GPU:0'. A device that is listed twice has two
      workers.
    rendezvous: None for this process alone; else a cluster, or its options.

  Raises:
    ValueError: an option is unknown.
    errors.ConfigError: a device does not exist, or the processes cannot connect
      to each other.
  """
  if rendezvous is None:
    cluster = clusters.ClusterOptions()
  elif isinstance(rendezvous, clusters.ClusterOptions):
    cluster = rendezvous
  elif isinstance(rendezvous, dict):
    # Processes use collectives, unless the options say otherwise.
    chosen = {'exchange': clusters.COLLECTIVE} | rendezvous
    cluster = options.build(clusters.ClusterOptions, **chosen)
  else:
    raise ValueError(
      'rendezvous: expected None, a dict of options or a cluster, received '
      f"{rendezvous!r}. Use {{'cluster': 'tf_config'}}, for example."
    )
  names = devices_lib.device_names(devices)
  num_devices = len(names)
  num_workers = num_devices * cluster.num_processes
  return coordination.join(cluster, num_devices, num_workers, names)
