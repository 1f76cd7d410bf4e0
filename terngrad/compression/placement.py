"""Devices and processes that a `ParallelModel` runs on."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from terngrad.cluster import coordination
from terngrad.cluster import devices as devices_lib
from terngrad.cluster import watchdog
from terngrad.config import cluster as clusters
from terngrad.config import options
from terngrad.exchange import device_groups
from terngrad.exchange import protocol


def join(
  devices: Sequence[int | str],
  rendezvous: dict[str, Any] | clusters.ClusterOptions | None = None,
  devices_per_worker: int = 1,
) -> protocol.Exchange:
  """Creates the exchange, whose batches have a row per device.

  Blocks until all processes have joined. After `start_timeout` seconds this
  process ends with 1, and its message names those that are missing.

  Args:
    devices: numbers of GPUs, or of logical CPU devices on a machine without
      GPU; or names such as '/GPU:0'. A device that is listed twice has two
      workers.
    rendezvous: None for this process alone; else a cluster, or its options.
    devices_per_worker: K; each K devices of the list are one worker.

  Raises:
    ValueError: an option is unknown, or K does not divide the devices.
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
  count, size = len(names), devices_per_worker
  device_groups.check_size(count, size)
  num_workers = count // size * cluster.num_processes
  # `tasks` may wait for the others in a rendezvous, which has its own limit.
  tasks, limit = cluster.tasks, watchdog.limit_start
  with coordination.time_limit(tasks, cluster.start_timeout, 'Start', limit):
    exchange = coordination.join(cluster, count, num_workers, names, size)
  if isinstance(exchange, device_groups.DeviceGroups):
    return dataclasses.replace(exchange, rows_are_devices=True)
  return exchange
