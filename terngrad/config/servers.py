"""What a run with parameter servers is: the flags of its tasks."""

import dataclasses
import functools

from terngrad import errors
from terngrad import lazy
from terngrad.cluster import spec as clusters
from terngrad.config import cluster as cluster_lib
from terngrad.config import model as model_lib
from terngrad.config import options
from terngrad.config import run as run_lib
from terngrad.config import training as configs

option = options.option
method = lazy.module('terngrad.codec.method')
SERVERS = 'servers'


def _fixed(value):
  """A field that no caller, and no flag, can set."""
  return dataclasses.field(default=value, init=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerData(model_lib.Data):
  """What a worker process reads, and how many examples it takes a step."""

  batch_size: int = option(
    32,
    'Examples a step of each worker process, split over its nodes.',
    shared=options.WORKERS,
    on_resume=options.KEPT,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerRun(run_lib.Run):
  """How long a run is, and what its chief leaves."""

  train_dir: str = option(
    '',
    "Folder for the chief's checkpoints and records; a run that stands there "
    'continues.',
    shared=options.OWN,
  )
  # The chief would score while all others wait; evaluate beside the run.
  eval_subsets: tuple = _fixed(())
  save_interval_secs: int = option(
    600, 'Seconds between checkpoints, beside those of --save_iter.'
  )
  save_summaries_secs: int = option(
    180, 'Seconds between histograms, beside those of --save_iter.'
  )

  def validate(self):
    """Raises `errors.ConfigError` for the first option out of its range."""
    super().validate()
    for name in ('save_interval_secs', 'save_summaries_secs'):
      options.at_least(name, getattr(self, name), 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerCluster(cluster_lib.Cluster):
  """Where the tasks of a run are, and whom a step waits for."""

  exchange: str = _fixed(SERVERS)
  collective: str = _fixed('')
  communication: str = _fixed('auto')
  bandwidth: float = _fixed(1e9)
  latency: float = _fixed(5e-5)
  job_name: str = option(
    '', 'ps or worker: what this process is.', shared=options.OWN
  )
  num_replicas_to_aggregate: int = option(
    -1,
    'K workers whose gradients a step waits for; later ones are dropped. -1: '
    'all. Fewer than all: a step is of K times --batch_size examples, and a '
    'run is not repeatable to the bit.',
    on_resume=options.TOLD,
  )
  sync: bool = option(
    True,
    'False: every worker goes at its own pace, and a step is an update by the '
    'gradient of one. Not repeatable to the bit.',
    on_resume=options.TOLD,
  )
  max_staleness: int = option(
    -1,
    'With --sync=False: drop a gradient that more updates than this were '
    'faster than; -1 for none.',
    on_resume=options.TOLD,
  )
  scale_learning_rate_by_staleness: bool = option(
    False,
    'With --sync=False: divide the learning rate of a gradient by 1 + its '
    'staleness.',
    on_resume=options.TOLD,
  )

  @functools.cached_property
  def tasks(self):
    """`cluster.spec.Cluster` of the run.

    Raises:
      errors.ConfigError: there is none, or not with this task in it.
    """
    for name in ('ps_hosts', 'worker_hosts'):
      if self.cluster == 'flags' and not getattr(self, name):
        raise errors.ConfigError(
          f'{name}: expected host:port,host:port, received nothing. Give every '
          'task the same two lists.'
        )
    cluster = self._checked_cluster()
    for job in clusters.JOBS:
      if job not in cluster.jobs:
        raise errors.ConfigError(
          f'cluster: expected a {job} task at least, received none from '
          f'--cluster={self.cluster[:200]}. Use --cluster=flags with '
          '--ps_hosts and --worker_hosts, tf_config, slurm:1, or a file that '
          'lists both.'
        )
    return cluster

  @property
  def num_processes(self):
    """Processes that share the nodes of one task: itself."""
    return 1

  @property
  def aggregate(self):
    """K, the worker processes whose gradients make an update."""
    if not self.sync:
      return 1
    if self.num_replicas_to_aggregate == -1:
      return len(self.tasks.jobs['worker'])
    return self.num_replicas_to_aggregate

  @property
  def waits_for_all(self):
    """Whether every update is by the gradients of all worker processes."""
    return self.sync and self.aggregate == len(self.tasks.jobs['worker'])

  def validate(self):
    """Raises `errors.ConfigError` for the first option out of its range."""
    options.at_least('bytes_per_bucket', self.bytes_per_bucket, 0)
    num_workers = len(self.tasks.jobs['worker'])
    if self.num_replicas_to_aggregate not in (-1, *range(1, num_workers + 1)):
      raise errors.ConfigError(
        'num_replicas_to_aggregate: expected -1 or from 1 to all '
        f'{num_workers} workers, received {self.num_replicas_to_aggregate}. '
        'Leave it out for all.'
      )
    if self.sync:
      for name in ('max_staleness', 'scale_learning_rate_by_staleness'):
        if not options.is_default(self, name):
          raise errors.ConfigError(
            f'{name}: expected it to be left out of a synchronous run, where '
            f'no gradient is late; received {getattr(self, name)}. Give '
            '--sync=False.'
          )
      return
    options.at_least('max_staleness', self.max_staleness, -1)
    if self.num_replicas_to_aggregate not in (-1, 1):
      raise errors.ConfigError(
        'num_replicas_to_aggregate: expected it to be left out beside '
        '--sync=False, where every gradient is an update; received '
        f'{self.num_replicas_to_aggregate}. Leave one of the two out.'
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerConfig(configs.TrainConfig):
  """One task of a run with parameter servers.

  Numbers are a process's own: `batch_size` examples a worker process, dealt to
  its `num_workers` nodes on its `num_gpus` devices.
  """

  data: ServerData = options.part(ServerData)
  run: ServerRun = options.part(ServerRun)
  cluster: ServerCluster = options.part(ServerCluster)

  def whole(self):
    """The same run with the numbers of all that make an update together."""
    aggregate = self.cluster.aggregate
    return options.replace(
      self,
      batch_size=self.data.batch_size * aggregate,
      num_nodes=self.num_workers * aggregate,
    )

  def validate(self):
    """Raises `errors.ConfigError` for the first option that cannot be."""
    super().validate()
    if self.devices.save_tower > 0:
      raise errors.ConfigError(
        f'save_tower: expected -1 or 0, received {self.devices.save_tower}. '
        'The chief stores its own parameters, which equal all others.'
      )
    if self.devices.bn_statistics != 'averaged':
      raise errors.ConfigError(
        'bn_statistics: expected averaged with parameter servers, received '
        f"{self.devices.bn_statistics}: other processes' statistics would be "
        'in no checkpoint. Leave it out.'
      )
    for name in ('devices', 'device_weights'):
      if getattr(self.devices, name):
        raise errors.ConfigError(
          f'{name}: expected none with parameter servers, received '
          f'{",".join(getattr(self.devices, name))}: the chief knows the '
          'devices of other tasks by their number alone. Use --num_gpus.'
        )
    # Sums must have room for the nodes of all that make an update.
    codes = self.codes.named(self.whole().num_workers)
    if not self.cluster.waits_for_all:
      self._check_asynchronous(codes.methods)

  def _check_asynchronous(self, methods):
    """Refuses what needs the same step of all workers."""
    if self.codes.floating_grad_epoch:
      raise errors.ConfigError(
        'floating_grad_epoch: expected 0 where a step does not wait for all '
        f'workers, received {self.codes.floating_grad_epoch}: they are not in '
        'the same epoch. Use --grad_bits=32 for float32 gradients, or leave it '
        'out.'
      )
    if self.devices.local_steps > 1:
      raise errors.ConfigError(
        'local_steps: expected 1 where a step does not wait for all workers, '
        f'received {self.devices.local_steps}: the mean of all is what makes '
        'their parameters equal again. Leave it out, or use a synchronous run.'
      )
    if self.model.dtype == 'float16':
      raise errors.ConfigError(
        'dtype: expected float32 or bfloat16 where a step does not wait for '
        'all workers, received float16, whose scale of the loss belongs to a '
        'step of all. Use --dtype=bfloat16.'
      )
    for code in methods:
      _check_alone(code)
    if self.codes.codec_warm_up:
      raise errors.ConfigError(
        'codec_warm_up: expected none where a step does not wait for all '
        f'workers, received {self.codes.codec_warm_up!r}: they are not in the '
        'same step. Leave it out, or use a synchronous run.'
      )


def _check_alone(code):
  """Refuses a code whose workers need each other in a step."""
  if code.carries:
    raise errors.ConfigError(
      'codec: expected sharing=probe where a step does not wait for all '
      f'workers, received {code.name}: each process codes by a scaler of its '
      'own, and has no other to requantize to. Leave sharing out, or use a '
      'synchronous run.'
    )
  # Of one variable that is a matrix: shapes say what a method sends.
  shapes = ((8, 8),)
  owners = {state.owner for state in code.states(shapes)}
  waits = code.num_rounds > 1 or code.finishes or code.draws_in_decode
  if waits or owners - {method.WORKER}:
    raise errors.ConfigError(
      'codec: expected a code of one round where a step does not wait for all '
      f'workers, received {code.name}, whose workers wait for each other, '
      'remember the mean of all or draw alike in a step. Use a synchronous '
      'run, or another code.'
    )


def banner(cluster):
  """The first lines of a task's log, from its `ServerCluster`."""
  tasks = cluster.tasks
  workers = list(tasks.jobs['worker'])
  yield clusters.check_network(tasks, cluster.allow_insecure_network)
  yield f'PS hosts are: {list(tasks.jobs["ps"])}'
  yield f'Worker hosts are: {workers}'
  yield f'Server target: grpc://{tasks.address}'
  if not tasks.is_chief:
    return
  if cluster.sync:
    yield (
      f'SyncReplicas: replicas_to_aggregate={cluster.aggregate}; '
      f'total_num_replicas={len(workers)}'
    )
  else:
    yield f'Asynchronous: max_staleness={cluster.max_staleness}'
  if not cluster.waits_for_all:
    yield (
      'The order in which gradients come decides: two runs do not end at the '
      'same bits'
    )
