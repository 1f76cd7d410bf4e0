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
# A block, described for another process: jobs, job, index, seconds, its name,
# and in a `signals.stop_at_signal` block a list with the last saved step.
_Request: TypeAlias = tuple[
  dict[str, tuple[str, ...]], str, int, float, str, list[Any] | None
]
# For each block the end of its time by `time.monotonic`, and its description.
_Waiting: TypeAlias = dict[int, tuple[float, _Request]]
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
  request: _Request = (
    dict(cluster.jobs),
    cluster.job,
    cluster.index,
    seconds,
    what,
    [guard.stop.saved] if guard and guard.stop else None,
  )
  try:
    with contextlib.ExitStack() as stack:
      if end_with is None:
        stack.enter_context(_printer(os.getpid()).print_after(delay, request))
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

  @contextlib.contextmanager
  def print_after(self, seconds: float, request: _Request) -> Iterator[None]:
    """Prints the `timeout_report` of `request` if a block takes longer."""
    number = next(self._numbers)
    self._send([number, seconds, request])
    try:
      yield
    finally:
      self._send([number])

  def _send(self, words: Sequence[Any] | Mapping[str, Any]) -> None:
    # If the other process has ended or hangs, this process continues.
    # After `communicate` the pipe is closed: a ValueError.
    with contextlib.suppress(OSError, ValueError):
      line = json.dumps(words) + '\n'
      os.write(self._input.fileno(), line.encode())


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
  waiting: _Waiting = {}
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
    for line in map(json.loads, lines):
      _handle(line, waiting, watch)


def _patience(
  waiting: _Waiting, watch: signal_watcher.SignalWatcher | None
) -> float:
  """Returns the seconds that the printing process can wait for input."""
  soonest = min((when for when, _ in waiting.values()), default=math.inf)
  patience = max(0.0, min(3600.0, soonest - time.monotonic()))
  return min(patience, watch.patience) if watch else patience


def _handle(
  line: dict[str, Any] | list[Any],
  waiting: _Waiting,
  watch: signal_watcher.SignalWatcher | None,
) -> None:
  """Handles one message of the watched process."""
  if isinstance(line, dict):
    if watch and 'taken' in line:
      watch.record_first(line['taken'])
    elif watch:
      watch.blocked = line['blocked']
    return
  number, *more = line
  waiting.pop(number, None)
  if more:
    seconds, request = more
    waiting[number] = time.monotonic() + seconds, request


def _print_due(waiting: _Waiting) -> None:
  """Prints the message of each block whose time is over."""
  now = time.monotonic()
  for number in [n for n, (when, _) in waiting.items() if when <= now]:
    _, (jobs, job, index, seconds, what, _) = waiting.pop(number)
    cluster = clusters.make(jobs, job, index)
    sys.stderr.write(f'error: {timeout_report(cluster, seconds, what)}\n')


def _finish(
  watch: signal_watcher.SignalWatcher, number: int, waiting: _Waiting
) -> None:
  """Ends the watched process after a signal, and prints what it did."""
  _, request = next(reversed(waiting.values()), (0, None))
  what, last_saved = (request[4], request[5]) if request else ('', None)
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
  return f'{what}: {loss_report(cluster, f"it took more than {seconds:g} s")}'


def loss_report(cluster: clusters.Cluster, reason: str) -> str:
  """Returns the message for lost tasks; asks every task for a sign of life.

  Tasks that TensorFlow's `reason` mentions count as lost.
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
  lost = [
    f'{job} {index} ({address})'
    for (job, index), address in others.items()
    if (job, index) in mentioned or not alive[job, index]
  ]
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
  except OSError:
    return False


if __name__ == '__main__':
  _print_messages(sys.argv[1:])
