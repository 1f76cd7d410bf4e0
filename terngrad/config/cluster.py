"""Options of runs with several processes, and their cluster."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable
from collections.abc import Collection
from typing import cast

from terngrad import aliases
from terngrad import errors
from terngrad import lazy
from terngrad.cluster import rendezvous
from terngrad.cluster import spec as clusters
from terngrad.config import meetings
from terngrad.config import options

TOWERS, COLLECTIVE = 'towers', 'collective'
BYTES_PER_BUCKET = 2**25
# Characters of the largest file of hosts.
_MOST_HOSTS = 2**20

groups = lazy.module('terngrad.exchange.group')
resolvers = lazy.module('terngrad.cluster.resolvers')
algorithms = lazy.module('terngrad.exchange.algorithms')

__getattr__ = aliases.renamed_names(__name__, Cluster='ClusterOptions')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterOptions(options.ConfigPart):
  """Options of the processes of a run and of their communication."""

  exchange: str = options.option(
    TOWERS,
    'towers: one process. collective: one process for each entry of '
    '--worker_hosts, without parameter servers, each with the same number of '
    'nodes; task 0 writes --train_dir.',
  )
  collective: str = options.option(
    'auto',
    'Algorithm that sends messages between processes: gather, reduce (codes '
    'that can be added, see --codec), two_shot or slices (floats). auto takes '
    'the fastest for each message by --bandwidth and --latency, and logs why. '
    'To compress the sums as well use --codec=bidirectional+ternary.',
  )
  bandwidth: float = options.option(
    1e9,
    'Network bandwidth of a process in bits per second, from which '
    '--collective=auto chooses; the result is bit-identical for any value.',
    least=1,
  )
  latency: float = options.option(
    5e-5,
    'Network latency between two processes in seconds, for the same choice.',
    least=0,
  )
  communication: str = options.option(
    'auto',
    "Implementation of TensorFlow's collectives: ring, over gRPC; nccl, for "
    'data gathered from GPUs; auto is ring.',
  )
  bytes_per_bucket: int = options.option(
    BYTES_PER_BUCKET,
    'With several processes: send codes as soon as this many bytes of float32 '
    'gradients are computed, while earlier layers still compute theirs; 0 '
    'sends all at once. The result is bit-identical for any value.',
  )
  cluster: str = options.option(
    'flags',
    'Source of the addresses of all processes: flags; tf_config; slurm '
    '(slurm:N: the first N tasks are parameter servers); kubernetes:LABEL '
    '(pods with hostNetwork; NODE_IP holds the address of this one); '
    'rendezvous (processes write their addresses to --rendezvous_dir); '
    'redis:URL (to a Redis server, such as redis:redis://HOST:6379/0, under '
    '--run_id); mpi (to --rendezvous_dir, with ranks from mpirun); or a file '
    'with one host:port per line. rendezvous, redis and mpi are for '
    '--exchange=collective.',
    shared=options.LOCAL,
  )
  worker_hosts: str = options.option(
    '', 'host:port of every worker, separated by commas.'
  )
  ps_hosts: str = options.option(
    '', 'host:port of every parameter server, separated by commas.'
  )
  job_name: str = options.option(
    'worker', 'Job of this process: ps or worker.', shared=options.LOCAL
  )
  task_id: int = options.option(
    0, 'Index of this process in its job, from 0.', shared=options.LOCAL
  )
  cluster_port: int = options.option(
    2222,
    'Port of the tasks with --cluster=slurm, kubernetes, rendezvous or redis; '
    'with mpi the port of the first task on a host.',
    shared=options.LOCAL,
  )
  rendezvous_dir: str = options.option(
    '',
    'Folder on a shared file system, a separate one for each run, in which '
    'each process writes its address under its --task_id.',
    shared=options.LOCAL,
  )
  rendezvous_processes: int = options.option(
    0, 'Number of processes, with --cluster=rendezvous or redis.'
  )
  run_id: str = options.option(
    '',
    'Name of the run on the Redis server. The environment variable '
    'REDIS_PASSWORD holds the password of the server, if it has one.',
  )
  own_address: str = options.option(
    '',
    'With --cluster=rendezvous, redis or mpi: host:port at which the other '
    "processes reach this one; empty: this machine's name and --cluster_port.",
    shared=options.LOCAL,
  )
  allow_insecure_network: bool = options.option(
    False,
    'Allow addresses other than loopback. Use it only behind a firewall: '
    'anyone who can connect to a port can run code on its host.',
  )
  start_timeout: float = options.option(
    300.0, 'Seconds to wait until all processes have started.'
  )
  step_timeout: float = options.option(
    600.0, 'Seconds to wait for a step of all processes and its checkpoint.'
  )

  @functools.cached_property
  def tasks(self) -> clusters.Cluster | None:
    """The cluster of the run; None for a run of one process.

    The result is cached, because a scheduler's answer may change.

    Raises:
      errors.ConfigError: the options name no valid cluster.
    """
    self.validate()
    if self.exchange == TOWERS:
      options.refuse(
        bool(self.worker_hosts or self.ps_hosts),
        f'worker_hosts: expected none for --exchange={TOWERS}, received '
        f'{(self.worker_hosts or self.ps_hosts)[:200]!r}. Give '
        f'--exchange={COLLECTIVE}, or leave the hosts out.',
      )
      kind = self._source
      options.refuse(
        kind != 'flags',
        f'cluster: expected flags for --exchange={TOWERS}, received '
        f'{kind[:200]!r}. Give --exchange={COLLECTIVE}, or leave the flag out.',
      )
      self.refuse_all_but((), f'--exchange={TOWERS}')
      return None
    cluster = self._checked_cluster()
    options.refuse(
      'ps' in cluster.jobs,
      f'ps_hosts: expected none for --exchange={COLLECTIVE}, received '
      f'{len(cluster.jobs.get("ps", ()))}. Collectives use no parameter '
      'servers: list all processes as workers.',
    )
    return cluster

  @functools.cached_property
  def meeting(self) -> rendezvous.Meeting | None:
    """The rendezvous where processes get all addresses; None without one.

    Raises:
      errors.ConfigError: an option of it is invalid.
    """
    make = meetings.KINDS.get(self._source)
    if make is None or self.exchange != COLLECTIVE:
      return None
    with errors.as_config_error():
      return make(self)

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    super().validate()
    for name, known in {
      'exchange': (TOWERS, COLLECTIVE),
      'collective': (algorithms.AUTO, *algorithms.NAMES),
      'communication': groups.COMMUNICATIONS,
    }.items():
      options.refuse(
        getattr(self, name) not in known,
        f'{name}: expected one of {", ".join(known)}, received '
        f'{getattr(self, name)!r}. Use one of these.',
      )
    options.refuse(
      self.bytes_per_bucket < 0,
      'bytes_per_bucket: expected bytes >= 0, received '
      f'{self.bytes_per_bucket}. Use 0 to send all at once.',
    )

  @property
  def _source(self) -> str:
    """The text of --cluster before ':'; after it may be a password."""
    return self.cluster.partition(':')[0]

  def refuse_all_but(self, read: Collection[str], where: str) -> None:
    """Refuses options that name tasks or meetings and are not read.

    Args:
      read: names of the options that are read.
      where: option that decides it, for the message.

    Raises:
      errors.ConfigError: another option has not its default.
    """
    for name in dict.fromkeys(itertools.chain(*_READ.values())):
      options.refuse(
        name not in read and not options.is_default(self, name),
        f'{name}: expected none with {where}, which does not read it, received '
        f'{getattr(self, name)!r:.200}. Leave it out, or choose the --cluster '
        'that reads it.',
      )

  @property
  def num_processes(self) -> int:
    """Number of worker processes; each has the same number of nodes."""
    return len(self.tasks.jobs['worker']) if self.tasks else 1

  @property
  def writes_files(self) -> bool:
    """Whether this process writes the log, checkpoints and records."""
    return self.tasks is None or self.tasks.is_chief

  keeps_files = aliases.renamed_attribute('keeps_files', 'writes_files')

  def _checked_cluster(self) -> clusters.Cluster:
    """Resolves --cluster and checks the time limits and the network."""
    for name in ('start_timeout', 'step_timeout'):
      options.refuse(
        not 1 <= getattr(self, name) < 10**6,
        f'{name}: expected seconds from 1 to 1000000, received '
        f'{getattr(self, name)}. Set --{name}=600.',
      )
    kind = self._source
    if kind in _READ:
      self.refuse_all_but(_READ[kind], f'--cluster={kind}')
    resolve = RESOLVERS.get(kind, _from_file)
    with errors.as_config_error():
      cluster = resolve(self)
      clusters.check_network(cluster, self.allow_insecure_network)
    return cluster


def _from_flags(config: ClusterOptions) -> clusters.Cluster:
  return clusters.from_flags(
    config.ps_hosts, config.worker_hosts, config.job_name, config.task_id
  )


def _from_slurm(config: ClusterOptions) -> clusters.Cluster:
  count = config.cluster.partition(':')[2] or '0'
  options.refuse(
    not (count.isdecimal() and len(count) < 6),
    'cluster: expected a number of parameter servers after slurm:, received '
    f'{count[:200]!r}. Use --cluster=slurm:1, or --cluster=slurm for none.',
  )
  return resolvers.from_slurm(int(count), config.cluster_port)


def _from_kubernetes(config: ClusterOptions) -> clusters.Cluster:
  return resolvers.from_kubernetes(
    {'worker': config.cluster.partition(':')[2]},
    config.cluster_port,
    os.environ.get('NODE_IP', ''),
  )


def _from_meeting(config: ClusterOptions) -> clusters.Cluster:
  """Joins a rendezvous of equal processes; returns their cluster."""
  kind = config.cluster.partition(':')[0]
  options.refuse(
    config.meeting is None,
    f'cluster: expected --exchange={COLLECTIVE} with {kind}, which has no '
    'parameter servers, received a run with parameter servers. Use '
    '--cluster=flags.',
  )
  return cast(rendezvous.Meeting, config.meeting).join(config.start_timeout)


def _from_file(config: ClusterOptions) -> clusters.Cluster:
  try:
    with open(config.cluster, encoding='utf-8-sig') as file:
      text = file.read(_MOST_HOSTS + 1)
      if len(text) > _MOST_HOSTS:
        raise ValueError(f'more than {_MOST_HOSTS} characters')
  except (OSError, ValueError) as error:
    raise errors.ConfigError(
      f'cluster: expected {", ".join(RESOLVERS)} (kubernetes:LABEL, redis:URL) '
      f'or a file of hosts, received {config.cluster[:200]!r}: {error}. Check '
      'the path.'
    ) from error
  config.refuse_all_but(
    ('job_name', 'task_id'), f'--cluster={config.cluster[:200]}'
  )
  return resolvers.from_hosts_text(text, config.job_name, config.task_id)


# The options of tasks and meetings that each --cluster reads, if that is known.
_READ: dict[str, tuple[str, ...]] = {
  'flags': ('worker_hosts', 'ps_hosts', 'job_name', 'task_id'),
  'tf_config': (),
  'slurm': (),
  'kubernetes': (),
  'rendezvous': (
    *('rendezvous_dir', 'rendezvous_processes', 'own_address', 'task_id'),
  ),
  'redis': ('run_id', 'rendezvous_processes', 'own_address', 'task_id'),
  'mpi': ('rendezvous_dir', 'own_address'),
}

# Resolvers by the text of --cluster before ':'. Any other text names a file.
RESOLVERS: dict[str, Callable[[ClusterOptions], clusters.Cluster]] = {
  'flags': _from_flags,
  'tf_config': lambda _: resolvers.from_tf_config(
    os.environ.get('TF_CONFIG', '')
  ),
  'slurm': _from_slurm,
  'kubernetes': _from_kubernetes,
  **dict.fromkeys(meetings.KINDS, _from_meeting),
}
