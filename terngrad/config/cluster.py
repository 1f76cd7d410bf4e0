"""The options of runs of several processes, and the cluster that they name."""

import dataclasses
import functools
import os
import socket

from terngrad import errors
from terngrad import lazy
from terngrad.cluster import file_rendezvous
from terngrad.cluster import rendezvous
from terngrad.cluster import spec as clusters
from terngrad.config import options

TOWERS, COLLECTIVE = 'towers', 'collective'
BYTES_PER_BUCKET = 2**25

groups = lazy.module('terngrad.exchange.group')
redis_rendezvous = lazy.module('terngrad.cluster.redis_rendezvous')
resolvers = lazy.module('terngrad.cluster.resolvers')
algorithms = lazy.module('terngrad.exchange.algorithms')

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
  """Where the processes of a run are."""

  exchange: str = option(
    TOWERS,
    'towers: one process; collective: equal processes, one a --worker_hosts '
    'entry, that share the nodes evenly. Task 0 writes --train_dir.',
  )
  collective: str = option(
    'auto',
    'How messages travel between processes: gather, reduce (codes that add, '
    'see --codec), two_shot, slices (floats); auto takes for each that of the '
    'least time by --bandwidth and --latency, and the log says why. Sums that '
    'are coded on their way back are a code: --codec=bidirectional+ternary.',
  )
  bandwidth: float = option(
    1e9,
    'Bits a second of a process, by which --collective=auto chooses; it '
    'changes no bit of the result.',
  )
  latency: float = option(
    5e-5,
    'Seconds from one process to another, likewise.',
  )
  communication: str = option(
    'auto',
    "Runtime of the collectives: ring, TensorFlow's own over gRPC; nccl, for "
    'what is gathered from GPUs; auto is ring.',
  )
  bytes_per_bucket: int = option(
    BYTES_PER_BUCKET,
    'Several processes: float32 bytes of gradients from which on codes are '
    'sent, while those of earlier layers are still computed; 0 sends all at '
    'once. It changes no bit.',
  )
  cluster: str = option(
    'flags',
    'Who takes part: flags; tf_config; slurm (slurm:N: the first N tasks are '
    'parameter servers); kubernetes:LABEL (pods with hostNetwork; NODE_IP '
    'holds the address of this one); rendezvous (equal processes meet in '
    '--rendezvous_dir); redis:URL (they meet at a Redis server, such as '
    'redis:redis://HOST:6379/0, as --run_id); mpi (they meet in '
    '--rendezvous_dir, numbered by mpirun); or a file with a host:port a line.',
    shared=options.OWN,
  )
  worker_hosts: str = option('', 'host:port of every worker, with commas.')
  ps_hosts: str = option('', 'host:port of every parameter server.')
  job_name: str = option(
    'worker', 'ps or worker: what this process is.', shared=options.OWN
  )
  task_id: int = option(
    0, 'Place of this process in the list of its job.', shared=options.OWN
  )
  cluster_port: int = option(
    2222,
    'Port of tasks of slurm, kubernetes, rendezvous and redis; of mpi that of '
    'the first on a host.',
  )
  rendezvous_dir: str = option(
    '',
    'Folder on a shared file system, one a run, where each process leaves its '
    'address as --task_id.',
    shared=options.OWN,
  )
  rendezvous_processes: int = option(0, 'Processes that meet there.')
  run_id: str = option(
    '',
    'Name of the run at a Redis server, of which the password, if it has one, '
    'is in REDIS_PASSWORD.',
  )
  own_address: str = option(
    '',
    "host:port of this process, for the others there; empty: this machine's "
    'name and --cluster_port.',
    shared=options.OWN,
  )
  allow_insecure_network: bool = option(
    False,
    'Let addresses other than loopback take part: only behind a firewall, '
    'since whoever reaches a port can run code there.',
  )
  start_timeout: float = option(300.0, 'Seconds to wait for all to begin.')
  step_timeout: float = option(
    600.0, 'Seconds to wait for a step of all, with its checkpoint.'
  )

  @functools.cached_property
  def tasks(self):
    """`cluster.spec.Cluster` of the run; None for one process alone.

    It is asked for once: what a scheduler answers may change.

    Raises:
      errors.ConfigError: what is said of it cannot be.
    """
    self.validate()
    if self.exchange == TOWERS:
      if self.worker_hosts or self.ps_hosts:
        raise errors.ConfigError(
          f'worker_hosts: expected none for --exchange={TOWERS}, received '
          f'{(self.worker_hosts or self.ps_hosts)[:200]!r}. Give '
          f'--exchange={COLLECTIVE}, or leave the hosts out.'
        )
      return None
    cluster = self._checked_cluster()
    if 'ps' in cluster.jobs:
      raise errors.ConfigError(
        f'ps_hosts: expected none for --exchange={COLLECTIVE}, received '
        f'{len(cluster.jobs["ps"])}. Processes of collectives are equal: list '
        'them all as workers.'
      )
    return cluster

  def validate(self):
    """Raises `errors.ConfigError` for the first option out of its range."""
    for name, known in {
      'exchange': (TOWERS, COLLECTIVE),
      'collective': (algorithms.AUTO, *algorithms.NAMES),
      'communication': groups.COMMUNICATIONS,
    }.items():
      if getattr(self, name) not in known:
        raise errors.ConfigError(
          f'{name}: expected one of {", ".join(known)}, received '
          f'{getattr(self, name)!r}. Use one of these.'
        )
    options.at_least('bandwidth', self.bandwidth, 1)
    options.at_least('latency', self.latency, 0)
    if self.bytes_per_bucket < 0:
      raise errors.ConfigError(
        'bytes_per_bucket: expected bytes >= 0, received '
        f'{self.bytes_per_bucket}. Use 0 to send all at once.'
      )

  @property
  def num_processes(self):
    """Processes that share the nodes."""
    return len(self.tasks.jobs['worker']) if self.tasks else 1

  @property
  def keeps_files(self):
    """Whether this process writes what the run leaves, and its log."""
    return self.tasks is None or self.tasks.is_chief

  def _checked_cluster(self):
    """The cluster that the options name, on a network that may be used."""
    for name in ('start_timeout', 'step_timeout'):
      if not 1 <= getattr(self, name) < 10**6:
        raise errors.ConfigError(
          f'{name}: expected seconds from 1 to 1000000, received '
          f'{getattr(self, name)}. Set --{name}=600.'
        )
    try:
      resolve = RESOLVERS.get(self.cluster.partition(':')[0], _from_file)
      cluster = resolve(self)
      clusters.check_network(cluster, self.allow_insecure_network)
    except clusters.ClusterError as error:
      raise errors.ConfigError(str(error)) from error
    return cluster


def _from_flags(options):
  return clusters.from_flags(
    options.ps_hosts, options.worker_hosts, options.job_name, options.task_id
  )


def _from_tf_config(options):
  del options
  return resolvers.from_tf_config(os.environ.get('TF_CONFIG', ''))


def _from_slurm(options):
  count = options.cluster.partition(':')[2] or '0'
  if not (count.isdecimal() and len(count) < 6):
    raise errors.ConfigError(
      'cluster: expected a number of parameter servers behind slurm:, received '
      f'{count[:200]!r}. Use --cluster=slurm:1, or slurm for none.'
    )
  return resolvers.from_slurm(int(count), options.cluster_port)


def _from_kubernetes(options):
  label = options.cluster.partition(':')[2]
  return resolvers.from_kubernetes(
    {'worker': label}, options.cluster_port, os.environ.get('NODE_IP', '')
  )


def _from_rendezvous(options):
  place = file_rendezvous.Folder(options.rendezvous_dir)
  return _meet(options, place, options.task_id, options.rendezvous_processes)


def _from_redis(options):
  url = options.cluster.partition(':')[2]
  password = os.environ.get('REDIS_PASSWORD')
  place = redis_rendezvous.Server(url, options.run_id, password)
  return _meet(options, place, options.task_id, options.rendezvous_processes)


def _from_mpi(options):
  rank, count, local_rank = resolvers.mpi_ranks(os.environ)
  place = file_rendezvous.Folder(options.rendezvous_dir)
  return _meet(options, place, rank, count, local_rank)


def _meet(options, place, index, count, local_rank=0):
  """The cluster of equal processes that meet at a place."""
  if options.exchange != COLLECTIVE:
    # What follows the kind may hold a password.
    kind = options.cluster.partition(':')[0]
    raise errors.ConfigError(
      f'cluster: expected --exchange={COLLECTIVE} with {kind}, '
      'whose processes are equal, received parameter servers. Use '
      '--cluster=flags.'
    )
  port = options.cluster_port + local_rank
  address = options.own_address or f'{socket.gethostname()}:{port}'
  return rendezvous.meet(place, index, count, address, options.start_timeout)


def _from_file(options):
  try:
    with open(options.cluster, encoding='utf-8-sig') as file:
      text = file.read(2**20)
  except (OSError, ValueError) as error:
    raise errors.ConfigError(
      f'cluster: expected {", ".join(RESOLVERS)} (with a :LABEL behind '
      'kubernetes, a :URL behind redis) or a file of hosts, received '
      f'{options.cluster[:200]!r}: {error}. Check the path.'
    ) from error
  return resolvers.from_hosts_text(text, options.job_name, options.task_id)


# What --cluster begins with: a function of the options that returns a
# `cluster.spec.Cluster`. Anything else is a file.
RESOLVERS = {
  'flags': _from_flags,
  'tf_config': _from_tf_config,
  'slurm': _from_slurm,
  'kubernetes': _from_kubernetes,
  'rendezvous': _from_rendezvous,
  'redis': _from_redis,
  'mpi': _from_mpi,
}
