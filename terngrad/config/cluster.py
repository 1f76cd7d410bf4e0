"""Options of runs with several processes, and their cluster."""

import dataclasses
import functools
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from terngrad import errors
from terngrad import lazy
from terngrad.cluster import file_rendezvous
from terngrad.cluster import rendezvous
from terngrad.cluster import spec as clusters
from terngrad.config import options

if TYPE_CHECKING:
  from terngrad.cluster import redis_rendezvous as redis_lib

TOWERS, COLLECTIVE = 'towers', 'collective'
BYTES_PER_BUCKET = 2**25

groups = lazy.module('terngrad.exchange.group')
redis_rendezvous = lazy.module('terngrad.cluster.redis_rendezvous')
resolvers = lazy.module('terngrad.cluster.resolvers')
algorithms = lazy.module('terngrad.exchange.algorithms')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster(options.Part):
  """Options of the processes of a run and of their communication."""

  exchange: str = options.option(
    TOWERS,
    'towers: one process; collective: equal processes, one a --worker_hosts '
    'entry, that share the nodes evenly. Task 0 writes --train_dir.',
  )
  collective: str = options.option(
    'auto',
    'How messages travel between processes: gather, reduce (codes that add, '
    'see --codec), two_shot, slices (floats); auto takes for each that of the '
    'least time by --bandwidth and --latency, and the log says why. Sums that '
    'are coded on their way back are a code: --codec=bidirectional+ternary.',
  )
  bandwidth: float = options.option(
    1e9,
    'Bits a second of a process, by which --collective=auto chooses; it '
    'changes no bit of the result.',
    least=1,
  )
  latency: float = options.option(
    5e-5, 'Seconds from one process to another, likewise.', least=0
  )
  communication: str = options.option(
    'auto',
    "Runtime of the collectives: ring, TensorFlow's own over gRPC; nccl, for "
    'what is gathered from GPUs; auto is ring.',
  )
  bytes_per_bucket: int = options.option(
    BYTES_PER_BUCKET,
    'Several processes: float32 bytes of gradients from which on codes are '
    'sent, while those of earlier layers are still computed; 0 sends all at '
    'once. It changes no bit.',
  )
  cluster: str = options.option(
    'flags',
    'Who takes part: flags; tf_config; slurm (slurm:N: the first N tasks are '
    'parameter servers); kubernetes:LABEL (pods with hostNetwork; NODE_IP '
    'holds the address of this one); rendezvous (equal processes meet in '
    '--rendezvous_dir); redis:URL (they meet at a Redis server, such as '
    'redis:redis://HOST:6379/0, as --run_id); mpi (they meet in '
    '--rendezvous_dir, numbered by mpirun); or a file with a host:port a line.',
    shared=options.OWN,
  )
  worker_hosts: str = options.option(
    '', 'host:port of every worker, with commas.'
  )
  ps_hosts: str = options.option('', 'host:port of every parameter server.')
  job_name: str = options.option(
    'worker', 'ps or worker: what this process is.', shared=options.OWN
  )
  task_id: int = options.option(
    0, 'Place of this process in the list of its job.', shared=options.OWN
  )
  cluster_port: int = options.option(
    2222,
    'Port of tasks of slurm, kubernetes, rendezvous and redis; of mpi that of '
    'the first on a host.',
  )
  rendezvous_dir: str = options.option(
    '',
    'Folder on a shared file system, one a run, where each process leaves its '
    'address as --task_id.',
    shared=options.OWN,
  )
  rendezvous_processes: int = options.option(0, 'Processes that meet there.')
  run_id: str = options.option(
    '',
    'Name of the run at a Redis server, of which the password, if it has one, '
    'is in REDIS_PASSWORD.',
  )
  own_address: str = options.option(
    '',
    "host:port of this process, for the others there; empty: this machine's "
    'name and --cluster_port.',
    shared=options.OWN,
  )
  allow_insecure_network: bool = options.option(
    False,
    'Let addresses other than loopback take part: only behind a firewall, '
    'since whoever reaches a port can run code there.',
  )
  start_timeout: float = options.option(
    300.0, 'Seconds to wait for all to begin.'
  )
  step_timeout: float = options.option(
    600.0, 'Seconds to wait for a step of all, with its checkpoint.'
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
      return None
    cluster = self._checked_cluster()
    options.refuse(
      'ps' in cluster.jobs,
      f'ps_hosts: expected none for --exchange={COLLECTIVE}, received '
      f'{len(cluster.jobs.get("ps", ()))}. Processes of collectives are equal: '
      'list them all as workers.',
    )
    return cluster

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
  def num_processes(self) -> int:
    """Number of worker processes; each has the same number of nodes."""
    return len(self.tasks.jobs['worker']) if self.tasks else 1

  @property
  def keeps_files(self) -> bool:
    """Whether this process writes the log, checkpoints and records."""
    return self.tasks is None or self.tasks.is_chief

  def _checked_cluster(self) -> clusters.Cluster:
    """Resolves --cluster and checks the time limits and the network."""
    for name in ('start_timeout', 'step_timeout'):
      options.refuse(
        not 1 <= getattr(self, name) < 10**6,
        f'{name}: expected seconds from 1 to 1000000, received '
        f'{getattr(self, name)}. Set --{name}=600.',
      )
    resolve = RESOLVERS.get(self.cluster.partition(':')[0], _from_file)
    with errors.as_config_error():
      cluster = resolve(self)
      clusters.check_network(cluster, self.allow_insecure_network)
    return cluster


def _from_flags(chosen: Cluster) -> clusters.Cluster:
  return clusters.from_flags(
    chosen.ps_hosts, chosen.worker_hosts, chosen.job_name, chosen.task_id
  )


def _from_slurm(chosen: Cluster) -> clusters.Cluster:
  count = chosen.cluster.partition(':')[2] or '0'
  options.refuse(
    not (count.isdecimal() and len(count) < 6),
    'cluster: expected a number of parameter servers behind slurm:, received '
    f'{count[:200]!r}. Use --cluster=slurm:1, or slurm for none.',
  )
  return resolvers.from_slurm(int(count), chosen.cluster_port)


def _from_kubernetes(chosen: Cluster) -> clusters.Cluster:
  return resolvers.from_kubernetes(
    {'worker': chosen.cluster.partition(':')[2]},
    chosen.cluster_port,
    os.environ.get('NODE_IP', ''),
  )


def _from_rendezvous(chosen: Cluster) -> clusters.Cluster:
  place = file_rendezvous.Folder(chosen.rendezvous_dir)
  return _meet(chosen, place, chosen.task_id, chosen.rendezvous_processes)


def _from_redis(chosen: Cluster) -> clusters.Cluster:
  url = chosen.cluster.partition(':')[2]
  password = os.environ.get('REDIS_PASSWORD')
  place = redis_rendezvous.Server(url, chosen.run_id, password)
  return _meet(chosen, place, chosen.task_id, chosen.rendezvous_processes)


def _from_mpi(chosen: Cluster) -> clusters.Cluster:
  rank, count, local_rank = resolvers.mpi_ranks(os.environ)
  place = file_rendezvous.Folder(chosen.rendezvous_dir)
  return _meet(chosen, place, rank, count, local_rank)


def _meet(
  chosen: Cluster,
  place: 'file_rendezvous.Folder | redis_lib.Server',
  index: int,
  count: int,
  local_rank: int = 0,
) -> clusters.Cluster:
  """Returns the cluster of the equal processes that meet at a rendezvous.

  This is process `index` of `count`. Its port is --cluster_port plus its rank
  on the host.
  """
  # The text after ':' may hold a password, so the message shows only the kind.
  kind = chosen.cluster.partition(':')[0]
  options.refuse(
    chosen.exchange != COLLECTIVE,
    f'cluster: expected --exchange={COLLECTIVE} with {kind}, whose processes '
    'are equal, received parameter servers. Use --cluster=flags.',
  )
  port = chosen.cluster_port + local_rank
  address = chosen.own_address or f'{socket.gethostname()}:{port}'
  return rendezvous.meet(place, index, count, address, chosen.start_timeout)


def _from_file(chosen: Cluster) -> clusters.Cluster:
  try:
    with open(chosen.cluster, encoding='utf-8-sig') as file:
      text = file.read(2**20)
  except (OSError, ValueError) as error:
    raise errors.ConfigError(
      f'cluster: expected {", ".join(RESOLVERS)} (with a :LABEL behind '
      'kubernetes, a :URL behind redis) or a file of hosts, received '
      f'{chosen.cluster[:200]!r}: {error}. Check the path.'
    ) from error
  return resolvers.from_hosts_text(text, chosen.job_name, chosen.task_id)


# Resolvers by the text of --cluster before ':'. Any other text names a file.
RESOLVERS: dict[str, Callable[[Cluster], clusters.Cluster]] = {
  'flags': _from_flags,
  'tf_config': lambda _: resolvers.from_tf_config(
    os.environ.get('TF_CONFIG', '')
  ),
  'slurm': _from_slurm,
  'kubernetes': _from_kubernetes,
  'rendezvous': _from_rendezvous,
  'redis': _from_redis,
  'mpi': _from_mpi,
}
