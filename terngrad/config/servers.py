"""The configuration of a run with parameter servers."""

import dataclasses
import functools
from typing import TYPE_CHECKING
from typing import Any

from terngrad import lazy
from terngrad.cluster import spec as clusters
from terngrad.config import cluster as cluster_lib
from terngrad.config import model as model_lib
from terngrad.config import options
from terngrad.config import run as run_lib
from terngrad.config import training as configs

if TYPE_CHECKING:
  from typing_extensions import Self

  from terngrad.codec import method as methods

method = lazy.module('terngrad.codec.method')
SERVERS = 'servers'


def _fixed(value: options.Value) -> Any:
  """Declares a field with a fixed value and without a flag."""
  return dataclasses.field(default=value, init=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerData(model_lib.Data):
  """Options of the data set and of the batches of one worker process."""

  batch_size: int = options.option(
    32,
    'Examples a step of each worker process, split over its nodes.',
    shared=options.WORKERS,
    on_resume=options.KEPT,
    least=1,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerRun(run_lib.Run):
  """Options of the run's length and of the chief's checkpoints and records."""

  train_dir: str = options.option(
    '',
    "Folder for the chief's checkpoints and records; a run that stands there "
    'continues.',
    shared=options.OWN,
  )
  # No flag: all other tasks would wait while the chief scores. Evaluate in a
  # separate process.
  eval_subsets: tuple[str, ...] = _fixed(())
  keep_best: str = _fixed('')
  early_stopping: int = _fixed(0)
  save_interval_secs: int = options.option(
    600, 'Seconds between checkpoints, beside those of --save_iter.', least=1
  )
  save_summaries_secs: int = options.option(
    180, 'Seconds between histograms, beside those of --save_iter.', least=1
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerCluster(cluster_lib.Cluster):
  """Options of the tasks of a run and of the workers that a step waits for."""

  exchange: str = _fixed(SERVERS)
  collective: str = _fixed('')
  communication: str = _fixed('auto')
  bandwidth: float = _fixed(1e9)
  latency: float = _fixed(5e-5)
  job_name: str = options.option(
    '', 'ps or worker: what this process is.', shared=options.OWN
  )
  num_replicas_to_aggregate: int = options.option(
    -1,
    'K workers whose gradients a step waits for; later ones are dropped. -1: '
    'all. Fewer than all: a step is of K times --batch_size examples, and a '
    'run is not repeatable to the bit.',
    on_resume=options.TOLD,
  )
  sync: bool = options.option(
    True,
    'False: every worker goes at its own pace, and a step is an update by the '
    'gradient of one. Not repeatable to the bit.',
    on_resume=options.TOLD,
  )
  max_staleness: int = options.option(
    -1,
    'With --sync=False: drop a gradient that more updates than this were '
    'faster than; -1 for none.',
    on_resume=options.TOLD,
  )
  scale_learning_rate_by_staleness: bool = options.option(
    False,
    'With --sync=False: divide the learning rate of a gradient by 1 + its '
    'staleness.',
    on_resume=options.TOLD,
  )

  @functools.cached_property
  def tasks(self) -> clusters.Cluster:
    """The cluster of the run.

    Raises:
      errors.ConfigError: the options name no valid cluster, or one without
        parameter servers, workers or this task.
    """
    for name in ('ps_hosts', 'worker_hosts'):
      options.refuse(
        self.cluster == 'flags' and not getattr(self, name),
        f'{name}: expected host:port,host:port, received nothing. Give every '
        'task the same two lists.',
      )
    cluster = self._checked_cluster()
    for job in clusters.JOBS:
      options.refuse(
        job not in cluster.jobs,
        f'cluster: expected a {job} task at least, received none from '
        f'--cluster={self.cluster[:200]}. Use --cluster=flags with '
        '--ps_hosts and --worker_hosts, tf_config, slurm:1, or a file that '
        'lists both.',
      )
    return cluster

  @property
  def num_processes(self) -> int:
    """1: `num_workers` of this configuration counts one process's nodes."""
    return 1

  @property
  def aggregate(self) -> int:
    """K, the number of worker processes whose gradients make one update."""
    if not self.sync:
      return 1
    if self.num_replicas_to_aggregate == -1:
      return len(self.tasks.jobs['worker'])
    return self.num_replicas_to_aggregate

  @property
  def waits_for_all(self) -> bool:
    """Whether every update uses the gradients of all worker processes."""
    return self.sync and self.aggregate == len(self.tasks.jobs['worker'])

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    options.at_least('bytes_per_bucket', self.bytes_per_bucket, 0)
    num_workers = len(self.tasks.jobs['worker'])
    options.refuse(
      self.num_replicas_to_aggregate not in (-1, *range(1, num_workers + 1)),
      'num_replicas_to_aggregate: expected -1 or from 1 to all '
      f'{num_workers} workers, received {self.num_replicas_to_aggregate}. '
      'Leave it out for all.',
    )
    for name in ('max_staleness', 'scale_learning_rate_by_staleness'):
      options.refuse(
        self.sync and not options.is_default(self, name),
        f'{name}: expected it to be left out of a synchronous run, where no '
        f'gradient is late; received {getattr(self, name)}. Give --sync=False.',
      )
    options.at_least('max_staleness', self.max_staleness, -1)
    options.refuse(
      not self.sync and self.num_replicas_to_aggregate not in (-1, 1),
      'num_replicas_to_aggregate: expected it to be left out beside '
      '--sync=False, where every gradient is an update; received '
      f'{self.num_replicas_to_aggregate}. Leave one of the two out.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerConfig(configs.TrainConfig):
  """Configuration of one task of a run with parameter servers.

  Numbers are per process: each worker process splits a batch of `batch_size`
  examples over its `num_workers` nodes on its `num_gpus` devices.
  """

  data: ServerData = options.part(ServerData)
  run: ServerRun = options.part(ServerRun)
  cluster: ServerCluster = options.part(ServerCluster)

  def whole(self) -> 'Self':
    """Returns a copy whose batch size and nodes are those of a whole update.

    Both are multiplied by `ServerCluster.aggregate`.
    """
    aggregate = self.cluster.aggregate
    return options.replace(
      self,
      batch_size=self.data.batch_size * aggregate,
      num_nodes=self.num_workers * aggregate,
    )

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    super().validate()
    options.refuse(
      self.devices.save_tower > 0,
      f'save_tower: expected -1 or 0, received {self.devices.save_tower}. '
      'The chief stores its own parameters, which equal all others.',
    )
    options.refuse(
      self.devices.bn_statistics != 'averaged',
      'bn_statistics: expected averaged with parameter servers, received '
      f"{self.devices.bn_statistics}: other processes' statistics would be "
      'in no checkpoint. Leave it out.',
    )
    for name in ('devices', 'device_weights'):
      options.refuse(
        len(getattr(self.devices, name)) > 0,
        f'{name}: expected none with parameter servers, received '
        f'{",".join(getattr(self.devices, name))}: the chief knows the '
        'devices of other tasks by their number alone. Use --num_gpus.',
      )
    # The integers of a sum must have room for all nodes of an update.
    codes = self.codes.named(self.whole().num_workers)
    if not self.cluster.waits_for_all:
      self._check_asynchronous(codes.methods)

  def _check_asynchronous(self, codes: 'list[methods.Method]') -> None:
    """Refuses options that need all workers to be in the same step."""
    options.refuse(
      self.codes.floating_grad_epoch != 0,
      'floating_grad_epoch: expected 0 where a step does not wait for all '
      f'workers, received {self.codes.floating_grad_epoch}: they are not in '
      'the same epoch. Use --grad_bits=32 for float32 gradients, or leave it '
      'out.',
    )
    options.refuse(
      self.devices.local_steps > 1,
      'local_steps: expected 1 where a step does not wait for all workers, '
      f'received {self.devices.local_steps}: the mean of all is what makes '
      'their parameters equal again. Leave it out, or use a synchronous run.',
    )
    options.refuse(
      self.model.dtype == 'float16',
      'dtype: expected float32 or bfloat16 where a step does not wait for '
      'all workers, received float16, whose scale of the loss belongs to a '
      'step of all. Use --dtype=bfloat16.',
    )
    for code in codes:
      _check_alone(code)
    options.refuse(
      self.codes.codec_warm_up != '',
      'codec_warm_up: expected none where a step does not wait for all '
      f'workers, received {self.codes.codec_warm_up!r}: they are not in the '
      'same step. Leave it out, or use a synchronous run.',
    )


def _check_alone(code: 'methods.Method') -> None:
  """Refuses a code whose workers depend on each other within a step."""
  options.refuse(
    code.carries,
    'codec: expected sharing=probe where a step does not wait for all '
    f'workers, received {code.name}: each process codes by a scaler of its '
    'own, and has no other to requantize to. Leave sharing out, or use a '
    'synchronous run.',
  )
  # States depend on the shapes of the variables; one matrix shows all kinds.
  shapes = ((8, 8),)
  owners = {state.owner for state in code.states(shapes)}
  waits = code.num_rounds > 1 or code.finishes or code.draws_in_decode
  options.refuse(
    waits or not owners <= {method.WORKER},
    'codec: expected a code of one round where a step does not wait for all '
    f'workers, received {code.name}, whose workers wait for each other, '
    'remember the mean of all or draw alike in a step. Use a synchronous '
    'run, or another code.',
  )


def banner(cluster: ServerCluster) -> list[str]:
  """Returns the first lines of a task's log."""
  tasks = cluster.tasks
  workers = list(tasks.jobs['worker'])
  lines = [
    clusters.check_network(tasks, cluster.allow_insecure_network),
    f'PS hosts are: {list(tasks.jobs["ps"])}',
    f'Worker hosts are: {workers}',
    f'Server target: grpc://{tasks.address}',
  ]
  if not tasks.is_chief:
    return lines
  lines.append(
    f'SyncReplicas: replicas_to_aggregate={cluster.aggregate}; '
    f'total_num_replicas={len(workers)}'
    if cluster.sync
    else f'Asynchronous: max_staleness={cluster.max_staleness}'
  )
  if not cluster.waits_for_all:
    lines.append(
      'The order in which gradients come decides: two runs do not end at the '
      'same bits'
    )
  return lines
