"""The rendezvous that the options of a run's processes describe."""

import os
import socket
from collections.abc import Callable
from typing import Protocol

from terngrad import lazy
from terngrad.cluster import file_rendezvous
from terngrad.cluster import rendezvous

redis_rendezvous = lazy.module('terngrad.cluster.redis_rendezvous')
resolvers = lazy.module('terngrad.cluster.resolvers')


class MeetingOptions(Protocol):
  """The part of a `config.cluster.ClusterOptions` that a rendezvous needs."""

  @property
  def cluster(self) -> str:
    """'rendezvous', 'redis:URL' or 'mpi'."""

  @property
  def cluster_port(self) -> int:
    """Port of this process, or of the first one on its host."""

  @property
  def own_address(self) -> str:
    """'host:port' of this process; '' for this host and `cluster_port`."""

  @property
  def rendezvous_dir(self) -> str:
    """Folder of the run."""

  @property
  def rendezvous_processes(self) -> int:
    """Number of processes."""

  @property
  def run_id(self) -> str:
    """Name of the run at a Redis server."""

  @property
  def task_id(self) -> int:
    """Index of this process."""


def _in_folder(config: MeetingOptions) -> rendezvous.Meeting:
  location = file_rendezvous.Folder(config.rendezvous_dir)
  return _make(config, location, config.task_id, config.rendezvous_processes)


def _at_redis(config: MeetingOptions) -> rendezvous.Meeting:
  url = config.cluster.partition(':')[2]
  password = os.environ.get('REDIS_PASSWORD')
  location = redis_rendezvous.Server(url, config.run_id, password)
  return _make(config, location, config.task_id, config.rendezvous_processes)


def _under_mpi(config: MeetingOptions) -> rendezvous.Meeting:
  rank, count, local_rank = resolvers.mpi_ranks(os.environ)
  location = file_rendezvous.Folder(config.rendezvous_dir)
  return _make(config, location, rank, count, local_rank)


def _make(
  config: MeetingOptions,
  location: rendezvous.Location,
  index: int,
  count: int,
  local_rank: int = 0,
) -> rendezvous.Meeting:
  """Returns the meeting of process `index` of `count`.

  Its port is --cluster_port plus its rank on the host.
  """
  port = config.cluster_port + local_rank
  address = config.own_address or f'{socket.gethostname()}:{port}'
  return rendezvous.Meeting(location, index, count, address)


# By the text of --cluster before ':'.
KINDS: dict[str, Callable[[MeetingOptions], rendezvous.Meeting]] = {
  'rendezvous': _in_folder,
  'redis': _at_redis,
  'mpi': _under_mpi,
}
