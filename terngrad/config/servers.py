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


def _constant(value: options.Value) -> Any:
  """Declares a field with a fixed value and without a flag."""
  return dataclasses.field(default=value, init=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerDataOptions(model_lib.DataOptions):
  """Options of the data set and of the batches of one worker process."""

  batch_size: int = options.option(
    32,
    'Examples per step of each worker process, split over its nodes.',
    shared=options.WORKERS,
    on_resume=options.REFUSED,
    least=1,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerRunOptions(run_lib.RunOptions):
  """Options of the run's length and of the chief's checkpoints and records."""

  train_dir: str = options.option(
    '',
    'Folder for checkpoints and records of the chief; a run that it holds '
    'continues.',
    shared=options.LOCAL,
  )
  # No flag: all other tasks would wait while the chief scores. Evaluate in a
  # separate process.
  eval_subsets: tuple[str, ...] = _constant(())
  keep_best: str = _constant('')
  early_stopping: int = _constant(0)
  save_interval_secs: int = options.option(
    600, 'Seconds between checkpoints, besides those of --save_iter.', least=1
  )
  save_summaries_secs: int = options.option(
    180, 'Seconds between histograms, besides those of --save_iter.', least=1
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerClusterOptions(cluster_lib.ClusterOptions):
  """Options of the tasks of a run and of the workers that a step waits for."""

  exchange: str = _constant(SERVERS)
  collective: str = _constant('')
  communication: str = _constant('auto')
  bandwidth: float = _constant(1e9)
  latency: float = _constant(5e-5)
  job_name: str = options.option(
    '', 'Job of this process: ps or worker.', shared=options.LOCAL
  )
  num_replicas_to_aggregate: int = options.option(
    -1,
    'Number K of workers whose gradients a step waits for; later ones are '
    'dropped. -1: all. With fewer, a step uses K times --batch_size examples, '
    'and repeated runs are not bit-identical.',
    shared=options.WORKERS,
    on_resume=options.LOGGED,
  )
  sync: bool = options.option(
    True,
    'False: asynchronous training. Workers do not wait for each other, a step '
    'is an update by the gradient of one worker, and repeated runs are not '
    'bit-identical.',
    shared=options.WORKERS,
    on_resume=options.LOGGED,
  )
  max_staleness: int = options.option(
    -1,
    'With --sync=False: drop a gradient if more updates than this came after '
    'its worker pulled the parameters; -1 drops none.',
    shared=options.WORKERS,
    on_resume=options.LOGGED,
  )
  scale_learning_rate_by_staleness: bool = options.option(
    False,
    'With --sync=False: divide the learning rate of a gradient by 1 + its '
    'staleness.',
    shared=options.WORKERS,
    on_resume=options.LOGGED,
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
        'task the same --ps_hosts and --worker_hosts.',
      )
    cluster = self._checked_cluster()
    for job in clusters.JOBS:
      options.refuse(
        job not in cluster.jobs,
        f'cluster: expected at least one {job} task, received none from '
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
      'num_replicas_to_aggregate: expected -1 or a number from 1 to '
      f'{num_workers}, all workers; received '
      f'{self.num_replicas_to_aggregate}. Leave it out for all.',
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

  data: ServerDataOptions = options.part(ServerDataOptions)
  run: ServerRunOptions = options.part(ServerRunOptions)
  cluster: ServerClusterOptions = options.part(ServerClusterOptions)

  def per_update(self) -> 'Self':
    """Returns a copy with the batch size and nodes of an update.

    Both are multiplied by `ServerClusterOptions.aggregate`.
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
      self.data.dataset_name == 'text',
      'dataset_name: expected images with parameter servers, received text: '
      'their queues hold images. Use --exchange=collective.',
    )
    options.refuse(
      self.devices.save_tower > 0,
      f'save_tower: expected -1 or 0, received {self.devices.save_tower}. '
      'The chief stores its parameters, which equal those of all workers. '
      'Leave it out.',
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
        f'{",".join(getattr(self.devices, name))}: the chief knows only the '
        'number of devices of other tasks. Use --num_gpus.',
      )
    self.check_recipe(self.per_update().num_workers)
    # The integers of a sum must have room for all nodes of an update.
    run_methods = self.codes.methods(self.per_update().num_workers)
    if not self.cluster.waits_for_all:
      self._check_asynchronous(run_methods.methods)

  def _check_asynchronous(self, codes: 'list[methods.Method]') -> None:
    """Refuses options that need all workers to be in the same step."""
    options.refuse(
      self.codes.floating_grad_epoch != 0,
      'floating_grad_epoch: expected 0 if a step does not wait for all '
      f'workers, received {self.codes.floating_grad_epoch}: they are not in '
      'the same epoch. Use --grad_bits=32 for float32 gradients, or leave it '
      'out.',
    )
    options.refuse(
      self.devices.local_steps > 1,
      'local_steps: expected 1 if a step does not wait for all workers, '
      f'received {self.devices.local_steps}: only the mean of all workers '
      'makes their parameters equal again. Leave it out, or use a synchronous '
      'run.',
    )
    options.refuse(
      self.devices.devices_per_worker > 1,
      'devices_per_worker: expected 1 if a step does not wait for all workers, '
      f'received {self.devices.devices_per_worker}: there the nodes of a '
      'process already share one update. Leave it out, or use a synchronous '
      'run.',
    )
    options.refuse(
      self.model.dtype == 'float16',
      'dtype: expected float32 or bfloat16 if a step does not wait for '
      'all workers, received float16: loss scaling needs all workers in the '
      'same step. Use --dtype=bfloat16.',
    )
    for code in codes:
      _check_asynchronous_code(code)
    options.refuse(
      self.codes.codec_warm_up != '',
      'codec_warm_up: expected none if a step does not wait for all '
      f'workers, received {self.codes.codec_warm_up!r}: they are not in the '
      'same step. Leave it out, or use a synchronous run.',
    )


def _check_asynchronous_code(code: 'methods.Method') -> None:
  """Refuses a code whose workers depend on each other within a step."""
  options.refuse(
    code.carries,
    'codec: expected sharing=probe if a step does not wait for all '
    f'workers, received {code.name}: each process encodes with its local '
    'scaler, and there is no shared one to requantize to. Leave sharing out, '
    'or use a synchronous run.',
  )
  options.refuse(
    code.makes_updates,
    'codec: expected a code of gradients if a step does not wait for all '
    f'workers, received {code.name}, which makes updates of the mean of all. '
    'Use a synchronous run.',
  )
  # States depend on the shapes of the variables; one matrix shows all kinds.
  shapes = ((8, 8),)
  owners = {state.owner for state in code.states(shapes)}
  waits = code.num_rounds > 1 or code.finishes or code.draws_in_decode
  options.refuse(
    waits or not owners <= {method.WORKER},
    'codec: expected a code of one round if a step does not wait for all '
    f'workers, received {code.name}, whose workers wait for each other, store '
    'the mean of all or draw the same random numbers in a step. Use a '
    'synchronous run, or another code.',
  )


def banner(cluster: ServerClusterOptions) -> list[str]:
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
      'The result depends on the order in which gradients arrive: two runs are '
      'not bit-identical'
    )
  return lines
