"""Rendezvous: processes find each other through a shared location.

Each process writes its address under its index and waits for the addresses of
the others. A location serves one run. Whoever can write to it decides which
hosts the processes connect to, so its content is treated as hostile.
`file_rendezvous` and `redis_rendezvous` implement locations.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
from typing import Any
from typing import Protocol
from typing import TypeVar

from terngrad.cluster import spec as clusters
from terngrad.cluster import start_failures

_POLL_SECONDS = 0.2  # seconds
# Time limit of a look in seconds, even if the time to wait is over.
_MIN_READ_SECONDS = 5.0
# A name has 253 characters at most, a port five.
MAX_BYTES = 300
_T = TypeVar('_T')


class Location(start_failures.FailureEntries, Protocol):
  """A shared location where the processes of a run write their addresses."""

  # For messages: the location, and advice on how to use another one.
  name: str
  remedy: str

  def entry_name(self, index: int, count: int) -> str:
    """Returns the name of a process's entry for messages."""

  def sync(
    self, index: int, count: int, address: str
  ) -> Mapping[int, str | None]:
    """Writes an address under an index, unless there is one; returns all.

    Returns:
      {index: 'host:port'}, with None for a missing address.

    Raises:
      clusters.ClusterError: the location belongs to another run.
      ConnectionError: the location cannot be reached at the moment.
    """


def join(
  location: Location, index: int, count: int, address: str, timeout: float
) -> clusters.Cluster:
  """Publishes this process's address and waits for all others.

  A process may return with the same address: a restarted run finds its earlier
  entries and continues.

  Args:
    location: the location of this run.
    index: index of this process, from 0; process 0 is the chief.
    count: number of processes.
    address: address of this process, 'host:port', as the others reach it.
    timeout: seconds to wait for the others. The call ends at most 5 seconds
      later, even if the location does not answer.

  Returns:
    The cluster; all processes are workers.

  Raises:
    start_failures.OtherProcessFailedError: another process failed.
    clusters.ClusterError: a process is missing, an address is malformed or of
      another run, or `cluster.make` refuses the addresses.
  """
  if not 0 <= index < count <= clusters.MAX_TASKS:
    raise clusters.ClusterError(
      f'Rendezvous: expected 1 to {clusters.MAX_TASKS} processes, and for each '
      f'an index from 0 that is less than their number, received {count} and '
      f'{index}. Set --rendezvous_processes and --task_id.'
    )
  clusters.parse_address(address, 'own_address')
  begin = time.monotonic()
  end = begin + timeout
  found: Mapping[int, str | None] = {}
  last_error: ConnectionError | None = None
  while True:
    try:
      # Both calls together have this time.
      last = max(end, time.monotonic() + _MIN_READ_SECONDS)
      left = last - time.monotonic()
      found = _read(left, location, index, count, address)
      left = max(0.0, last - time.monotonic())
      failure = _limit(left, location.read_failure, index, count)
      start_failures.check(failure, time.monotonic() - begin)
      last_error = None
    except ConnectionError as error:
      last_error = error
    addresses = [there for i in range(count) if (there := found.get(i))]
    if len(addresses) == count:
      return clusters.make({'worker': addresses}, 'worker', index)
    if time.monotonic() > end:
      missing = [i for i in range(count) if not found.get(i)]
      raise clusters.ClusterError(
        _timeout_report(location, missing, count, timeout, last_error)
      ) from last_error
    time.sleep(_POLL_SECONDS)


def _read(
  seconds: float, location: Location, index: int, count: int, address: str
) -> Mapping[int, str | None]:
  """Reads and checks the published addresses."""
  found = _limit(seconds, location.sync, index, count, address)
  for i, text in found.items():
    if text is not None:
      clusters.parse_address(text, location.entry_name(i, count))
  if found[index] != address:
    raise clusters.ClusterError(
      f'{location.entry_name(index, count)}: expected {address}, the address '
      f'of this process, received {found[index]}: an earlier run wrote it, or '
      f'two processes have the same --task_id. {location.remedy}'
    )
  return found


def _limit(seconds: float, function: Callable[..., _T], *arguments: Any) -> _T:
  """Calls a function with a time limit; returns or raises what it does.

  After `seconds` it raises ConnectionError. Otherwise a server that answers
  byte by byte, or a silent name server or file system, could block the process
  forever.
  """
  ended: futures.Future[_T] = futures.Future()

  def call() -> None:
    try:
      ended.set_result(function(*arguments))
    except BaseException as error:
      ended.set_exception(error)

  # A daemon thread: unlike an executor's, it does not delay the process's end.
  threading.Thread(target=call, daemon=True).start()
  if not futures.wait([ended], seconds).done:
    raise ConnectionError('no complete answer in this time')
  return ended.result()


def _timeout_report(
  location: Location,
  missing: Sequence[int],
  count: int,
  timeout: float,
  last_error: ConnectionError | None,
) -> str:
  limit = f'within --start_timeout={timeout:g} seconds'
  if last_error:
    return (
      f'Rendezvous: expected to reach {location.name} {limit}, received: '
      f'{last_error}. Check that it is available and that this machine may use '
      'it.'
    )
  shown = ', '.join(map(str, missing[:20]))
  return (
    f'Rendezvous: expected {count} processes in {location.name} {limit}, '
    f'received {count - len(missing)}; missing: {shown}'
    f'{" and more" if len(missing) > 20 else ""}. Start the process with '
    f'--task_id={missing[0]}, and check that it uses the same --cluster and '
    '--rendezvous_dir or --run_id.'
  )


class Meeting:
  """This process in a rendezvous, from its start to the first step.

  Attributes:
    has_joined: whether all processes have found each other.
  """

  def __init__(
    self, location: Location, index: int, count: int, address: str
  ) -> None:
    """Connects to nothing yet; the arguments are those of `join`."""
    self._location, self._index, self._count = location, index, count
    self._address = address
    self.has_joined = False

  def join(self, timeout: float) -> clusters.Cluster:
    """Joins within some seconds; see the function `join`."""
    cluster = join(
      self._location, self._index, self._count, self._address, timeout
    )
    self.has_joined = True
    return cluster

  @contextlib.contextmanager
  def share_failures(self, end: Callable[[str], object]) -> Iterator[None]:
    """Ends all processes if one fails in this block.

    Args:
      end: called in another thread with a message if another process fails
        after all have joined. Before that, `join` raises the error.
    """
    try:
      if not self.has_joined:
        yield
        return
      with start_failures.watch(self._location, self._index, self._count, end):
        yield
    except BaseException as error:
      self._report(error)
      raise

  def _report(self, error: BaseException) -> None:
    """Stores this process's failure, unless another one is its cause."""
    cause: BaseException | None = error
    while cause is not None:
      if isinstance(cause, start_failures.OtherProcessFailedError):
        return
      cause = cause.__cause__
    # This process ends with its own error, whether the others read it or not.
    with contextlib.suppress(clusters.ClusterError, ConnectionError):
      _limit(
        _MIN_READ_SECONDS,
        self._location.write_failure,
        self._index,
        self._count,
        start_failures.shorten(error),
      )
