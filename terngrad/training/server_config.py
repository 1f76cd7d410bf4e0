"""What a run with parameter servers is: the flags of its tasks."""

import dataclasses
import os
import tempfile

from terngrad.exchange import cluster as clusters
from terngrad.training import config as configs
from terngrad.training import errors

option = configs.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerConfig(configs.TrainConfig):
  """One task of a run with parameter servers.

  Numbers of the base class are a process's own: `batch_size` examples a worker
  process, dealt to its `num_workers` nodes on its `num_gpus` devices.
  """

  train_dir: str = option(
    os.path.join(tempfile.gettempdir(), 'dataset_distributed_train'),
    "Folder for the chief's checkpoints and records; a run that stands there "
    'continues.',
    'run',
  )
  batch_size: int = option(
    32, 'Examples a step of each worker process, split over its nodes.', 'data'
  )
  job_name: str = option('', 'ps or worker.', 'cluster')
  task_id: int = option(
    0,
    'Place of this process in its list of hosts; worker 0 is chief.',
    'cluster',
  )
  ps_hosts: str = option(
    '', 'Parameter servers, host:port,host:port.', 'cluster'
  )
  worker_hosts: str = option('', 'Workers, host:port,host:port.', 'cluster')
  allow_insecure_network: bool = option(
    False,
    'Tasks may be on other machines: nobody else can reach their ports. '
    "TensorFlow's servers ask nobody who they are.",
    'cluster',
  )
  num_replicas_to_aggregate: int = option(
    -1, 'Workers whose gradients a step waits for; -1: all.', 'cluster'
  )
  start_timeout: int = option(
    300, 'Seconds to wait for the other tasks to come.', 'cluster'
  )
  step_timeout: int = option(
    300,
    'Seconds that a step may take, before the tasks that do not answer are '
    'named and the chief ends. The first may take as long again.',
    'cluster',
  )
  save_interval_secs: int = option(
    600, 'Seconds between checkpoints, beside those of --save_iter.', 'run'
  )
  save_summaries_secs: int = option(
    180, 'Seconds between histograms, beside those of --save_iter.', 'run'
  )

  def cluster(self):
    """The `exchange.cluster.Cluster` of the flags.

    Raises:
      errors.ConfigError: there is none, or not with this task in it.
    """
    for name in ('ps_hosts', 'worker_hosts'):
      if not getattr(self, name):
        raise errors.ConfigError(
          f'{name}: expected host:port,host:port, received nothing. Give every '
          'task the same two lists.'
        )
    try:
      return clusters.from_flags(
        self.ps_hosts, self.worker_hosts, self.job_name, self.task_id
      )
    except clusters.ClusterError as error:
      raise errors.ConfigError(str(error)) from error

  def whole(self, num_processes):
    """The same run with the numbers of all its processes together."""
    return dataclasses.replace(
      self,
      batch_size=self.batch_size * num_processes,
      num_nodes=self.num_workers * num_processes,
    )

  def validate(self):
    """Raises `errors.ConfigError` for the first field out of its range."""
    super().validate()
    cluster = self.cluster()
    num_workers = len(cluster.jobs['worker'])
    try:
      clusters.check_network(cluster, self.allow_insecure_network)
    except clusters.ClusterError as error:
      raise errors.ConfigError(str(error)) from error
    for name in (
      'start_timeout',
      'step_timeout',
      'save_interval_secs',
      'save_summaries_secs',
    ):
      configs.at_least(name, getattr(self, name), 1)
    if self.num_replicas_to_aggregate not in (-1, num_workers):
      raise errors.ConfigError(
        f'num_replicas_to_aggregate: expected -1 or all {num_workers} workers, '
        f'received {self.num_replicas_to_aggregate}. Leave it out.'
      )
    if self.save_tower > 0:
      raise errors.ConfigError(
        f'save_tower: expected -1 or 0, received {self.save_tower}. The chief '
        'stores its own parameters, which equal all others.'
      )
    self.whole(num_workers).gradient_code()


def banner(config, cluster):
  """The first lines of a task's log: warning, hosts and who it is."""
  jobs = cluster.jobs
  num_workers = len(jobs['worker'])
  yield clusters.check_network(cluster, config.allow_insecure_network)
  yield f'PS hosts are: {list(jobs["ps"])}'
  yield f'Worker hosts are: {list(jobs["worker"])}'
  yield f'Server target: grpc://{cluster.address}'
  if cluster.is_chief:
    yield (
      f'SyncReplicas: replicas_to_aggregate={num_workers}; '
      f'total_num_replicas={num_workers}'
    )
