"""Limits every wait: names the silent task and ends the process.

A TensorFlow call that waits for another task cannot be cancelled, so the
process has to end. Some of these calls hold Python's lock, for instance when a
traced function is sent to all tasks. Then no Python thread of the process runs.
So a timer of the C library ends the process, and another process prints the
message.
"""

import atexit
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import functools
import itertools
import json
import math
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import IO
from typing import Any
from typing import NoReturn
from typing import TypeAlias
from typing import cast

from terngrad import signal_guard
from terngrad import signals
from terngrad.cluster import signal_watcher
from terngrad.cluster import spec as clusters

# Exit code of a process that ends because another one was lost; all can
# continue from the last checkpoint. EX_TEMPFAIL of sysexits.h; see
# `launching.exit_codes`.
LOST = 75
_PING_SECONDS = 2.0
# Exit code of a process that could not begin; see `cli.command`.
_START_FAILED = 1
# Seconds after the time limit to ask all tasks and to print the message: first
# for this process, then for the other one.
_MESSAGE_SECONDS = 10.0
# Seconds in which the other process starts to read.
_START_SECONDS = 10.0
# A block, described for another process: seconds, its name, and in a
# `signals.stop_at_signal` block a list with the last saved step.
_Request: TypeAlias = tuple[float, str, list[Any] | None]
_TASK = re.compile(r'/job:(ps|worker)(?:/replica:0)?/task:([0-9]{1,6})')


@contextlib.contextmanager
def limit(
  cluster: clusters.Cluster,
  seconds: float,
  what: str,
  end_with: Callable[[str], None] | None = None,
  code: int = LOST,
) -> Iterator[None]:
  """Ends the process if a block takes too long; names the silent tasks.

  Args:
    cluster: the cluster whose tasks are asked.
    seconds: time limit of the block.
    what: name of the block, for the message.
    end_with: called with the message instead of `end`; None for `end`.
    code: exit code of the process.
  """

  def report_timeout() -> None:
    message = timeout_report(cluster, seconds, what)
    end(message, code) if end_with is None else end_with(message)

  timer = threading.Timer(seconds, report_timeout)
  timer.daemon = True
  with signal_guard.block_signals():
    timer.start()
  delay = seconds + _MESSAGE_SECONDS
  guard = signals.guard()
  saved = [guard.stop.saved] if guard and guard.stop else None
  try:
    with contextlib.ExitStack() as stack:
      if end_with is None:
        printer = _printer(os.getpid())
        printer.describe(cluster)
        stack.enter_context(printer.print_after(delay, (seconds, what, saved)))
        stack.enter_context(_exit_after(delay + _MESSAGE_SECONDS, code))
      if guard:
        guard.waits.append(what)
        stack.callback(guard.waits.remove, what)
      yield
  finally:
    timer.cancel()


def limit_start(
  cluster: clusters.Cluster, seconds: float, what: str
) -> AbstractContextManager[None]:
  """Limits a block before the first step; its exit code is `_START_FAILED`."""
  return limit(cluster, seconds, what, code=_START_FAILED)


class _TimerSpec(ctypes.Structure):
  """`struct itimerspec`."""

  _fields_ = [
    (name, ctypes.c_long)
    for name in ('interval', 'interval_ns', 'seconds', 'nanoseconds')
  ]


def _timers() -> ctypes.CDLL | None:
  """Returns the C library, or None if it has no timers."""
  library = signal_watcher.library(
    'timer_create', 'timer_settime', 'timer_delete'
  )
  if library is None:
    return None
  library.timer_delete.argtypes = [ctypes.c_void_p]
  library.timer_settime.argtypes = [
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.POINTER(_TimerSpec),
    ctypes.c_void_p,
  ]
  library.timer_create.argtypes = [
    ctypes.c_int,
    ctypes.POINTER(signal_watcher.Event),
    ctypes.POINTER(ctypes.c_void_p),
  ]
  return library


@contextlib.contextmanager
def _exit_after(seconds: float, code: int) -> Iterator[None]:
  """Ends this process, whatever it does, if a block takes longer.

  It uses timer_create(2): when the time is over, a new thread of the C library
  calls `_exit` with the code.
  """
  library = _timers()
  timer = ctypes.c_void_p()
  event = signal_watcher.exit_event(code)
  if not library or library.timer_create(
    time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)
  ):
    yield
    return
  whole, part = divmod(seconds, 1)
  when = _TimerSpec(seconds=int(whole), nanoseconds=int(1e9 * part))
  library.timer_settime(timer, 0, ctypes.byref(when), None)
  try:
    yield
  finally:
    library.timer_delete(timer)


class _MessagePrinter:
  """A process that prints messages that this process can no longer print."""

  def __init__(self) -> None:
    self._numbers = itertools.count()
    self._cluster: clusters.Cluster | None = None
    # What did not fit into the pipe. Several threads send.
    self._unsent: list[bytes] = []
    self._lock = threading.Lock()
    words: list[str] = []
    shared: list[int] = []
    guard = signals.guard()
    if guard:
      exits = {
        number: signal_watcher.exit_pipe(signal_guard.EXIT_CODE + number)
        for number in signals.NUMBERS
      }
      reader = guard.reader
      shared = [reader, *(n for n in exits.values() if n is not None)]
      words = [
        json.dumps([os.getpid(), reader, guard.seconds, [*exits.items()]])
      ]
    # It ends when its standard input closes, so with this process.
    self._process = subprocess.Popen(
      [sys.executable, '-m', __name__, *words],
      stdin=subprocess.PIPE,
      stdout=subprocess.DEVNULL,
      pass_fds=shared,
    )
    # Not None, because of `stdin=subprocess.PIPE`.
    self._input = cast(IO[bytes], self._process.stdin)
    os.set_blocking(self._input.fileno(), False)
    atexit.register(self._process.communicate)
    signal_guard.listen(lambda **news: self._send(news))
    if number := signals.taken():
      self._send({'taken': number})

  def describe(self, cluster: clusters.Cluster) -> None:
    """Sends the cluster of the following blocks, unless it is known.

    A cluster of thousands of tasks is larger than the pipe, so it waits until
    the process reads.
    """
    if cluster != self._cluster:
      self._cluster = cluster
      described = [dict(cluster.jobs), cluster.job, cluster.index]
      self._send({'cluster': described}, seconds=_START_SECONDS)

  @contextlib.contextmanager
  def print_after(self, seconds: float, request: _Request) -> Iterator[None]:
    """Prints the `timeout_report` of `request` if a block takes longer."""
    number = next(self._numbers)
    begin = [number, seconds, request]
    self._send(begin)
    try:
      yield
    finally:
      self._send([number], cancels=begin)

  def _send(
    self,
    words: Sequence[Any] | Mapping[str, Any],
    cancels: Sequence[Any] = (),
    seconds: float = 0.0,
  ) -> None:
    """Sends a message; what does not fit is sent before the next one.

    If the other process has ended or hangs, this process continues.

    Args:
      words: the message.
      cancels: a message that needs no answer if it is not sent yet.
      seconds: time to wait for room in the pipe.
    """
    end = time.monotonic() + seconds
    # After `communicate` the pipe is closed: a ValueError.
    with self._lock, contextlib.suppress(OSError, ValueError):
      if (cancelled := _line(cancels)) in self._unsent:
        self._unsent.remove(cancelled)
      else:
        self._unsent.append(_line(words))
      pipe = self._input.fileno()
      while self._unsent:
        try:
          rest = self._unsent[0][os.write(pipe, self._unsent[0]) :]
          self._unsent[:1] = [rest] if rest else []
        except BlockingIOError:
          left = end - time.monotonic()
          if left <= 0 or not select.select([], [pipe], [], left)[1]:
            return


def _line(words: Sequence[Any] | Mapping[str, Any]) -> bytes:
  return f'{json.dumps(words)}\n'.encode()


@functools.cache
def _printer(process: int) -> _MessagePrinter:
  """Returns the `_MessagePrinter` of a process; after a fork, the child's."""
  del process
  return _MessagePrinter()


def _print_messages(words: list[str]) -> None:
  """Main loop of a `_MessagePrinter`'s process, also a `SignalWatcher`."""
  for ignored in signals.NUMBERS:
    # A terminal sends these signals to all processes of a program.
    signal.signal(ignored, signal.SIG_IGN)
  watch = None
  if words:
    process, reader, seconds, exits = json.loads(words[0])
    watch = signal_watcher.SignalWatcher(process, reader, seconds, dict(exits))
  requests = os.fdopen(0, 'rb', buffering=0)
  waiting = _Waiting()
  rest = b''
  while True:
    _print_due(waiting)
    if watch and (number := watch.poll()):
      _finish(watch, number, waiting)
      return
    patience = _patience(waiting, watch)
    sources = [requests, *(watch.sources if watch else ())]
    if requests not in select.select(sources, [], [], patience)[0]:
      continue
    block = requests.read(65536)
    if not block:
      return
    *lines, rest = (rest + block).split(b'\n')
    for line in lines:
      # Not JSON: another process wrote to the pipe.
      with contextlib.suppress(ValueError):
        _handle(json.loads(line), waiting, watch)


@dataclasses.dataclass
class _Waiting:
  """The blocks in which another process waits.

  Attributes:
    cluster: its cluster; None before the first block.
    blocks: for each block the end of its time by `time.monotonic`, and its
      description.
  """

  cluster: clusters.Cluster | None = None
  blocks: dict[int, tuple[float, _Request]] = dataclasses.field(
    default_factory=dict
  )


def _patience(
  waiting: _Waiting, watch: signal_watcher.SignalWatcher | None
) -> float:
  """Returns the seconds that the printing process can wait for input."""
  ends = (when for when, _ in waiting.blocks.values())
  soonest = min(ends, default=math.inf)
  patience = max(0.0, min(3600.0, soonest - time.monotonic()))
  return min(patience, watch.patience) if watch else patience


def _handle(
  line: dict[str, Any] | list[Any],
  waiting: _Waiting,
  watch: signal_watcher.SignalWatcher | None,
) -> None:
  """Handles one message of the watched process."""
  if isinstance(line, dict):
    if 'cluster' in line:
      waiting.cluster = clusters.make(*line['cluster'])
    elif watch and 'taken' in line:
      watch.record_first(line['taken'])
    elif watch:
      watch.blocked = line['blocked']
    return
  number, *more = line
  waiting.blocks.pop(number, None)
  if more:
    seconds, request = more
    waiting.blocks[number] = time.monotonic() + seconds, request


def _print_due(waiting: _Waiting) -> None:
  """Prints the message of each block whose time is over."""
  now = time.monotonic()
  due = [n for n, (when, _) in waiting.blocks.items() if when <= now]
  for number in due:
    _, (seconds, what, _) = waiting.blocks.pop(number)
    if waiting.cluster is not None:
      report = timeout_report(waiting.cluster, seconds, what)
      sys.stderr.write(f'error: {report}\n')


def _finish(
  watch: signal_watcher.SignalWatcher, number: int, waiting: _Waiting
) -> None:
  """Ends the watched process after a signal, and prints what it did."""
  _, request = next(reversed(waiting.blocks.values()), (0, None))
  what, last_saved = request[1:] if request else ('', None)
  saved = last_saved[0] if last_saved else None
  words = signal_guard.last_words(
    watch.requests, watch.seconds_to_end, what, saved, last_saved is not None
  )
  sys.stderr.write(f'{words}\n')
  sys.stderr.flush()
  watch.end(number)


def end(message: str, code: int = LOST) -> NoReturn:
  """Prints the reason and ends the process.

  It skips Python's cleanup, where TensorFlow would wait for lost tasks.
  """
  sys.stdout.flush()
  sys.stderr.write(f'error: {message}\n')
  sys.stderr.flush()
  os._exit(code)


def end_start(message: str) -> NoReturn:
  """Ends the process as `end` does, before the first step."""
  end(message, _START_FAILED)


def timeout_report(cluster: clusters.Cluster, seconds: float, what: str) -> str:
  """Returns the message for a block over its limit; asks every task."""
  reason = f'it took more than {seconds:g} s'
  return f'{what}: {loss_report(lost_tasks(cluster, reason), reason)}'


def lost_tasks(cluster: clusters.Cluster, reason: str) -> list[str]:
  """Returns the lost tasks; asks every other task for a sign of life.

  Tasks that TensorFlow's `reason` mentions count as lost.

  Returns:
    Texts such as 'worker 1 (host:port)'.
  """
  this_task = cluster.job, cluster.index
  mentioned = {
    (job, int(index))
    for job, index in _TASK.findall(reason)
    if int(index) < len(cluster.jobs.get(job, ()))
  }
  others = {
    (job, index): address
    for job, addresses in cluster.jobs.items()
    for index, address in enumerate(addresses)
    if (job, index) != this_task
  }
  with concurrent.futures.ThreadPoolExecutor(64) as pool:
    alive = dict(zip(others, pool.map(answers, others.values()), strict=True))
  return [
    f'{job} {index} ({address})'
    for (job, index), address in others.items()
    if (job, index) in mentioned or not alive[job, index]
  ]


def loss_report(lost: Sequence[str], reason: str) -> str:
  """Returns the message for lost tasks, those of `lost_tasks`."""
  answer = (
    f'no answer from {", ".join(lost)}'
    if lost
    else 'answers from all tasks, so one of them is slow'
  )
  first = reason.strip().splitlines()[0][:300] if reason.strip() else ''
  return (
    f'expected every task to respond in time, received {answer} ({first}). '
    'Check the log of that task. Then restart all tasks that have ended, with '
    'their original commands; the last checkpoint is valid.'
  )


def answers(address: str) -> bool:
  """Returns whether a running TensorFlow server listens at 'host:port'.

  The kernel accepts connections for a stopped process too. But only a running
  server sends the HTTP/2 greeting without a request.
  """
  host = clusters.host_of(address).strip('[]')
  port = int(address.rpartition(':')[2])
  try:
    with socket.create_connection((host, port), _PING_SECONDS) as connection:
      return connection.recv(1) != b''
  except (OSError, UnicodeError):  # of a name that cannot be looked up
    return False


if __name__ == '__main__':
  _print_messages(sys.argv[1:])
