"""The exchange among the replicas of a `tf.distribute` strategy.

Each replica is a worker, or each K replicas of a process. Workers are numbered
like replicas.
"""

import functools

import tensorflow as tf

from terngrad.exchange import collective
from terngrad.exchange import device_groups
from terngrad.exchange import group
from terngrad.exchange import protocol
from terngrad.exchange import towers

_group = functools.cache(group.Group.from_strategy)
LOCAL_STRATEGIES = (
  tf.distribute.MirroredStrategy,
  tf.distribute.OneDeviceStrategy,
)


def find_exchange(
  strategy: tf.distribute.Strategy,
  device: str,
  num_workers: int | None = None,
  devices_per_worker: int = 1,
) -> protocol.Exchange:
  """Returns the exchange among a strategy's replicas.

  Args:
    strategy: a strategy, or the default one.
    device: device of the model if there is no strategy.
    num_workers: number of virtual workers, only with a single replica; None for
      one worker.
    devices_per_worker: K, consecutive replicas of a process that are a worker.

  Returns:
    `towers.Towers` for one process, `collective.Collective` for several, in
    `device_groups.DeviceGroups` if K is above 1.

  Raises:
    ValueError: the strategy does not train synchronous replicas, there are
      virtual workers and several replicas, or K does not divide the replicas.
  """
  count = strategy.num_replicas_in_sync
  if num_workers is not None and count > 1:
    raise ValueError(
      f'num_workers: expected None under {type(strategy).__name__}, whose '
      f'{count} replicas are the workers, received {num_workers}. Use the '
      'strategy or virtual workers, not both.'
    )
  size = devices_per_worker
  if not tf.distribute.has_strategy():
    device_groups.check_size(1, size)
    return towers.Towers((device,), num_workers or 1)
  devices = tuple(strategy.extended.worker_devices)
  device_groups.check_size(len(devices), size)
  leading, count = devices[::size], count // size
  if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
    processes = _processes(strategy.cluster_resolver)
    if processes[0] > 1:
      members = collective.Collective(_group(*processes), leading, count)
      return device_groups.make(members, devices)
  elif not isinstance(strategy, LOCAL_STRATEGIES):
    raise ValueError(
      'strategy: expected MirroredStrategy, MultiWorkerMirroredStrategy, '
      f'OneDeviceStrategy or none, received {type(strategy).__name__}. Choose '
      'one of these.'
    )
  members_here = towers.Towers(leading, num_workers or count)
  return device_groups.make(members_here, devices)


def _processes(
  resolver: tf.distribute.cluster_resolver.ClusterResolver | None,
) -> tuple[int, int]:
  """Returns (number of processes, rank of this one) in a strategy's order."""
  if not resolver:
    return 1, 0
  jobs = resolver.cluster_spec().as_dict()
  chiefs, workers = (len(jobs.get(job, ())) for job in ('chief', 'worker'))
  if chiefs + workers < 2:
    return 1, 0
  before = chiefs if resolver.task_type == 'worker' else 0
  return chiefs + workers, before + resolver.task_id
