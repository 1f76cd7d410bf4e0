"""How processes that know a common place find each other there.

Each leaves its address under its number and waits for those of the others. A
place is one run's; whoever can write to it chooses whom the processes talk to,
so what stands there is read as hostile. `file_rendezvous` and
`redis_rendezvous` are places.
"""

import threading
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
from typing import Any
from typing import Protocol
from typing import TypeVar

from terngrad.cluster import spec as clusters

_LOOK_EVERY = 0.2  # seconds
# Seconds that a look has even if the time to wait is over.
_LEAST = 5.0
# A name has 253 characters at most, a port five.
MAX_BYTES = 300
_T = TypeVar('_T')


class Place(Protocol):
  """Where the processes of a run leave their addresses."""

  # What it is, and how a run gets another, for messages.
  name: str
  another: str

  def where(self, index: int, count: int) -> str:
    """What messages call the entry of a process."""

  def look(
    self, index: int, count: int, address: str
  ) -> Mapping[int, str | None]:
    """Leaves an address under an index, unless there is one; returns all.

    Returns:
      {index: 'host:port'}, with None for what is not there.

    Raises:
      clusters.ClusterError: the place is another run's.
      ConnectionError: it cannot be reached at the moment.
    """


def meet(
  place: Place, index: int, count: int, address: str, timeout: float
) -> clusters.Cluster:
  """Tells the others who this process is, and waits for them.

  A process that comes again with the same address is welcome: a run that was
  restarted finds what it left and goes on.

  Args:
    place: of this run.
    index: of this process, from 0; process 0 is the chief.
    count: of processes.
    address: of this process, 'host:port', as the others reach it.
    timeout: seconds to wait for the others. All ends within 5 seconds more,
      whatever the place does.

  Returns:
    All are workers.

  Raises:
    clusters.ClusterError: somebody did not come, an address there is of another
      run or none, or see `cluster.make`.
  """
  if not 0 <= index < count <= clusters.MAX_TASKS:
    raise clusters.ClusterError(
      f'Rendezvous: expected 1 to {clusters.MAX_TASKS} processes and a number '
      f'from 0 below that, received {count} and {index}. Set '
      '--rendezvous_processes and --task_id.'
    )
  clusters.parse_address(address, 'own_address')
  end = time.monotonic() + timeout
  found: Mapping[int, str | None] = {}
  unreached: ConnectionError | None = None
  while True:
    try:
      left = max(_LEAST, end - time.monotonic())
      found, unreached = _look(left, place, index, count, address), None
    except ConnectionError as error:
      unreached = error
    addresses = [there for i in range(count) if (there := found.get(i))]
    if len(addresses) == count:
      return clusters.make({'worker': addresses}, 'worker', index)
    if time.monotonic() > end:
      missing = [i for i in range(count) if not found.get(i)]
      raise clusters.ClusterError(
        _who_is_missing(place, missing, count, timeout, unreached)
      ) from unreached
    time.sleep(_LOOK_EVERY)


def _look(
  seconds: float, place: Place, index: int, count: int, address: str
) -> Mapping[int, str | None]:
  """The addresses that are there, which are checked."""
  found = _within(seconds, place.look, index, count, address)
  for i, text in found.items():
    if text is not None:
      clusters.parse_address(text, place.where(i, count))
  if found[index] != address:
    raise clusters.ClusterError(
      f'{place.where(index, count)}: expected {address}, as this process has, '
      f'received {found[index]}: it is of an earlier run, or two processes '
      f'have one --task_id. {place.another}'
    )
  return found


def _within(seconds: float, function: Callable[..., _T], *arguments: Any) -> _T:
  """What a function returns or raises, if it does so within so many seconds.

  Otherwise a `ConnectionError`: a server that sends an answer byte by byte, a
  name server or a file system that is silent would hold the process for ever.
  """
  ended: futures.Future[_T] = futures.Future()

  def call() -> None:
    try:
      ended.set_result(function(*arguments))
    except BaseException as error:
      ended.set_exception(error)

  # The end of the process does not wait for it, as for those of executors.
  threading.Thread(target=call, daemon=True).start()
  if not futures.wait([ended], seconds).done:
    raise ConnectionError('no whole answer in this time')
  return ended.result()


def _who_is_missing(
  place: Place,
  missing: Sequence[int],
  count: int,
  timeout: float,
  unreached: ConnectionError | None,
) -> str:
  within = f'within --start_timeout={timeout:g} seconds'
  if unreached:
    return (
      f'Rendezvous: expected to reach {place.name} {within}, received: '
      f'{unreached}. See that it runs and that this machine may use it.'
    )
  shown = ', '.join(map(str, missing[:20]))
  return (
    f'Rendezvous: expected {count} processes in {place.name} {within}, '
    f'received {count - len(missing)}; missing: {shown}'
    f'{" and more" if len(missing) > 20 else ""}. Start the process with '
    f'--task_id={missing[0]}, and see that it has the same place.'
  )
