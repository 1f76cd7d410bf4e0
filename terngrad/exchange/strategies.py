"""The exchange among the replicas of a `tf.distribute` strategy.

Each replica is a worker. Workers are numbered like replicas.
"""

import functools

import tensorflow as tf

from terngrad.exchange import collective
from terngrad.exchange import group
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
) -> towers.Towers | collective.Collective:
  """Returns the exchange among a strategy's replicas.

  Args:
    strategy: a strategy, or the default one.
    device: device of the model if there is no strategy.
    num_workers: number of virtual workers, only with a single replica; None for
      one worker.

  Returns:
    `towers.Towers` for one process, `collective.Collective` for several.

  Raises:
    ValueError: the strategy does not train synchronous replicas, or there are
      virtual workers and several replicas.
  """
  count = strategy.num_replicas_in_sync
  if num_workers is not None and count > 1:
    raise ValueError(
      f'num_workers: expected None under {type(strategy).__name__}, whose '
      f'{count} replicas are the workers, received {num_workers}. Use the '
      'strategy or virtual workers, not both.'
    )
  if not tf.distribute.has_strategy():
    return towers.Towers((device,), num_workers or 1)
  devices = tuple(strategy.extended.worker_devices)
  if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
    processes = _processes(strategy.cluster_resolver)
    if processes[0] > 1:
      return collective.Collective(_group(*processes), devices, count)
  elif not isinstance(strategy, LOCAL_STRATEGIES):
    raise ValueError(
      'strategy: expected MirroredStrategy, MultiWorkerMirroredStrategy, '
      f'OneDeviceStrategy or none, received {type(strategy).__name__}. Choose '
      'one of these.'
    )
  return towers.Towers(devices, num_workers or count)


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
