"""How processes that know a common place find each other there.

Each leaves its address under its number and waits for those of the others. A
place is one run's; whoever can write to it chooses whom the processes talk to,
so what stands there is read as hostile. `file_rendezvous` and
`redis_rendezvous` are places.
"""

import queue
import threading
import time

from terngrad.cluster import spec as clusters

_LOOK_EVERY = 0.2  # seconds
# Seconds that a look has even if the time to wait is over.
_LEAST = 5.0
# A name has 253 characters at most, a port five.
MAX_BYTES = 300


def meet(place, index, count, address, timeout):
  """Tells the others who this process is, and waits for them.

  A process that comes again with the same address is welcome: a run that was
  restarted finds what it left and goes on.

  Args:
    place: has `name` and `another`, texts for messages: what it is and how a
      run gets another; `where(index, count)`, a text too: where the address of
      a process stands; and `look(index, count, address)`, which leaves the
      address where nobody has left one under that index and returns what stands
      there, {index: 'host:port'}, with None for what is not there. It raises
      `clusters.ClusterError` where it is another run's, and
      `ConnectionError` where it cannot be reached at the moment.
    index: of this process, from 0; process 0 is the chief.
    count: of processes.
    address: of this process, 'host:port', as the others reach it.
    timeout: seconds to wait for the others. All ends within 5 seconds more,
      whatever the place does.

  Returns:
    A `cluster.Cluster` of workers.

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
  found, unreached = {}, None
  while True:
    try:
      left = max(_LEAST, end - time.monotonic())
      found, unreached = _look(left, place, index, count, address), None
    except ConnectionError as error:
      unreached = error
    missing = [i for i in range(count) if found.get(i) is None]
    if not missing:
      addresses = [found[i] for i in range(count)]
      return clusters.make({'worker': addresses}, 'worker', index)
    if time.monotonic() > end:
      raise clusters.ClusterError(
        _who_is_missing(place, missing, count, timeout, unreached)
      ) from unreached
    time.sleep(_LOOK_EVERY)


def _look(seconds, place, index, count, address):
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


def _within(seconds, function, *arguments):
  """What a function returns or raises, if it does so within so many seconds.

  Otherwise a `ConnectionError`: a server that sends an answer byte by byte, a
  name server or a file system that is silent would hold the process for ever.
  """
  ended = queue.SimpleQueue()

  def call():
    try:
      ended.put((function(*arguments), None))
    except BaseException as error:
      ended.put((None, error))

  # The end of the process does not wait for it.
  threading.Thread(target=call, daemon=True).start()
  try:
    value, error = ended.get(timeout=seconds)
  except queue.Empty:
    raise ConnectionError('no whole answer in this time') from None
  if error is not None:
    raise error
  return value


def _who_is_missing(place, missing, count, timeout, unreached):
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
