"""The cluster specification: jobs, addresses, and the task of this process.

Pure functions that parse input of a user or a scheduler. All input is treated
as hostile: an address is a host and a port and nothing else.
"""

import contextlib
import ipaddress
import re
import socket
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

# `ipaddress` also takes any text as a scope, as in fe80::1%text.
_IPV6 = re.compile(r'\[[0-9A-Fa-f:.]{2,45}\]')
# Python refuses to look up an empty label, or one of more than 63 characters.
_HOST = re.compile(
  r'(?=.{1,253}$)[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_-]{1,63})*\.?'
)
MAX_TASKS = 4096
JOBS = ('ps', 'worker')


class ClusterError(ValueError):
  """A cluster that is not valid, or that does not contain this process."""


class Cluster(NamedTuple):
  """The tasks of a run.

  Attributes:
    jobs: 'host:port' of each task of 'ps' and 'worker', at least one; a job
      without tasks is left out.
    job: job of this process.
    index: index of this process in its job.
  """

  jobs: Mapping[str, tuple[str, ...]]
  job: str
  index: int  # type: ignore[assignment]  # hides `tuple.index`

  @property
  def address(self) -> str:
    """Address of this process, 'host:port'."""
    return self.jobs[self.job][self.index]

  @property
  def is_chief(self) -> bool:
    """Whether this process is worker 0, which writes the run's files."""
    return (self.job, self.index) == ('worker', 0)


def make(jobs: Mapping[str, Sequence[str]], job: Any, index: Any) -> Cluster:
  """Validates a cluster.

  Args:
    jobs: for each job the 'host:port' of its tasks.
    job: job of this process, 'ps' or 'worker'; others are refused.
    index: index of this process in its job; other values are refused.

  Raises:
    ClusterError: an address or the task is not valid.
  """
  for name in jobs:
    if name not in JOBS:
      raise ClusterError(
        f'Cluster: expected the jobs {" and ".join(JOBS)}, received '
        f'{quote(name)}. Rename it or leave it out.'
      )
  found = {
    name: some
    for name in JOBS
    if (some := tuple(parse_address(a, name) for a in jobs.get(name, ())))
  }
  listed = [address for some in found.values() for address in some]
  if len(listed) > MAX_TASKS:
    raise ClusterError(
      f'Cluster: expected at most {MAX_TASKS} tasks, received '
      f'{len(listed)}. List fewer hosts.'
    )
  if pair := find_equal(listed):
    raise ClusterError(
      f'Cluster: expected every address once, received {" and ".join(pair)}. '
      'Give each task a different port.'
    )
  if not isinstance(job, str) or job not in found:
    raise ClusterError(
      f'Cluster: expected this task in one of the jobs '
      f'{", ".join(found) or "(there are none)"}, received the job '
      f'{quote(job)}. Set --job_name, or list the hosts of that job.'
    )
  if type(index) is not int or not 0 <= index < len(found[job]):
    raise ClusterError(
      f'Cluster: expected a {job} task from 0 to {len(found[job]) - 1}, '
      f'received {quote(index)}. Set --task_id to the index of this task in '
      'the list of its job, from 0.'
    )
  return Cluster(found, job, index)


def parse_address(text: Any, where: str = 'address') -> str:
  """Validates 'host:port', '192.0.2.1:2222' or '[2001:db8::1]:2222'.

  Examples:
    >>> parse_address('host-1.example:2222')
    'host-1.example:2222'

  Args:
    text: text to check.
    where: source of the text, for the message.

  Raises:
    ClusterError: the text is not an address.
  """
  host, colon, port = (
    text.rpartition(':') if isinstance(text, str) else [''] * 3
  )
  good = colon and re.fullmatch('[1-9][0-9]{0,4}', port) and int(port) < 2**16
  if not (good and _is_host(host)):
    raise ClusterError(
      f'{where}: expected host:port with a port from 1 to 65535, received '
      f'{quote(text)}. Write host.example:2222, or [2001:db8::1]:2222 for '
      'IPv6.'
    )
  return text


def find_equal(addresses: Sequence[str]) -> tuple[str, str] | None:
  """Finds two addresses that no two tasks can have; None if there are none.

  Spellings of a name or an IP address are equal, and so are all names of this
  machine, since TensorFlow's server listens on all interfaces.
  """
  known: dict[tuple[str, str], str] = {}
  for address in addresses:
    host, _, port = address.rpartition(':')
    name = host.strip('[]').lower().rstrip('.')
    if is_loopback(address):
      name = 'localhost'
    else:
      with contextlib.suppress(ValueError):
        name = str(ipaddress.ip_address(name))
    if (name, port) in known:
      return known[name, port], address
    known[name, port] = address
  return None


def from_flags(
  ps_hosts: str, worker_hosts: str, job_name: str, task_id: int
) -> Cluster:
  """Parses the cluster of a command line.

  Args:
    ps_hosts: 'host:port,host:port', or '' for no parameter server.
    worker_hosts: the same for workers.
    job_name: 'ps' or 'worker'.
    task_id: index in its job.

  Raises:
    ClusterError: `make` refuses the cluster.
  """
  lists = {'ps': ps_hosts, 'worker': worker_hosts}
  jobs = {name: hosts.split(',') for name, hosts in lists.items() if hosts}
  return make(jobs, job_name, task_id)


def check_network(cluster: Cluster, allow_insecure_network: bool) -> str:
  """Refuses networks that the user has not declared safe.

  TensorFlow's gRPC has no authentication and no encryption. Its server listens
  on all interfaces, whatever address it is given. Anyone who reaches its port
  can run operations in the process. `allow_insecure_network` is the user's
  statement that nobody else can reach these hosts.

  Returns:
    One line of warning to show.

  Raises:
    ClusterError: an address is not of this machine, and the network is not
      declared safe.
  """
  listed = [a for addresses in cluster.jobs.values() for a in addresses]
  outside = [a for a in listed if not is_loopback(a)]
  if not outside:
    return describe_open_ports([cluster.address])
  if not allow_insecure_network:
    raise ClusterError(
      f'allow_insecure_network: expected addresses of this machine only '
      f'(localhost, 127.0.0.1, [::1]), received {outside[0]}. TensorFlow has '
      'no authentication: everyone who reaches a port can run code there. Use '
      'a private network behind a firewall, and confirm it with '
      '--allow_insecure_network.'
    )
  return (
    f'warning: {len(outside)} of {len(listed)} tasks are on a network that '
    '--allow_insecure_network declares safe: its connections have no '
    'authentication and no encryption'
  )


def describe_open_ports(addresses: Sequence[str]) -> str:
  """Returns one line of warning for the addresses of this machine."""
  ports = [address.rpartition(':')[2] for address in addresses]
  subject = f'port {ports[0]} of this machine is'
  if len(ports) > 1:
    subject = f'ports {", ".join(ports)} of this machine are'
  return (
    'warning: TensorFlow has no authentication and its server listens on all '
    f'interfaces: {subject} open to everyone who can reach it'
  )


def check_port(cluster: Cluster) -> None:
  """Refuses a port that is in use, before any task gets a message.

  Raises:
    ClusterError: the port cannot be opened.
  """
  address = cluster.address
  port = int(address.rpartition(':')[2])
  try:
    with socket.socket() as probe:
      # As servers do: ignores closing connections of an earlier process.
      probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      probe.bind(('', port))
      probe.listen()
  except OSError as error:
    raise ClusterError(
      f'{cluster.job} {cluster.index} ({address}): expected to listen on its '
      f'port, received: {error.strerror}. Stop the process that uses the port, '
      'such as another process of this task, or choose another port.'
    ) from error


def is_loopback(address: str) -> bool:
  """Returns whether 'host:port' is always this machine; no name lookup."""
  host = host_of(address).strip('[]')
  try:
    return ipaddress.ip_address(host).is_loopback
  except ValueError:
    return host == 'localhost'


def host_of(address: str) -> str:
  """Returns the host of 'host:port'."""
  return address.rpartition(':')[0]


def _is_host(text: str) -> bool:
  if _IPV6.fullmatch(text):
    try:
      return ipaddress.ip_address(text[1:-1]).version == 6
    except ValueError:
      return False
  return _HOST.fullmatch(text) is not None


def quote(value: Any) -> str:
  """Formats a value for a message: one short line without control codes."""
  text = ascii(value)
  return text if len(text) <= 200 else f'{text[:200]}...'
