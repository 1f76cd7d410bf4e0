"""A thread that reads a process's signals and ends the process.

`signals.obey` starts it.
"""

import _thread
import contextlib
import functools
import math
import os
import pathlib
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from typing import Any
from typing import Protocol

from terngrad import errors

NUMBERS = (signal.SIGTERM, signal.SIGINT)
# Added to a signal's number for the exit code, as shells do.
EXIT_CODE = 128
# Environment variable: seconds from the first signal to the process's end.
VARIABLE = 'TERNGRAD_STOP_SECONDS'
# Schedulers often kill a process after 30 seconds.
_DEFAULT, LEAST, _MOST = 27.0, 1.0, 1e6
# Seconds that launchers and the manifests of scripts/cluster give a trainer to
# write a checkpoint and end. It ends itself before a scheduler kills it.
STOP_SECONDS, BEFORE_KILL_SECONDS = 120, 3
# One request to stop can send several signals. The same signal arrives twice if
# systemd or Slurm sends it to all processes of a job and `terngrad launch`
# passes it on. Another signal arrives if a terminal sends SIGINT to a script
# and its children, and the script sends SIGTERM.
_SAME_REQUEST_SECONDS = 1.0
_OTHER_REQUEST_SECONDS = 2.0
_LAST_WORDS_SECONDS = 0.5
# Seconds that a thread of `forward` may run after its block.
_TAKE_SECONDS = 0.1


def seconds() -> float:
  """Returns the seconds from the first signal to the end of this process.

  The default if the variable is no number; `check_seconds` reports that.
  """
  try:
    return min(_MOST, max(LEAST, float(os.environ[VARIABLE])))
  except (KeyError, ValueError):
    return _DEFAULT


def check_seconds() -> None:
  """Raises `ConfigError` if the environment's time limit is no number."""
  text = os.environ.get(VARIABLE)
  if text is None:
    return
  try:
    is_number = not math.isnan(float(text))
  except ValueError:
    is_number = False
  if not is_number:
    raise errors.ConfigError(
      f'{VARIABLE}: expected seconds, such as {_DEFAULT:g}, received {text!r}. '
      'Give a number, or unset the variable.'
    )


class Saves(Protocol):
  """A `signals.stop_at_signal` block: current wait and last checkpoint."""

  doing: str
  saved: int | None


class Requests:
  """Distinguishes a second request to stop from the first.

  Attributes:
    first: number of the first signal, or None.
    second: number of the signal that repeated the request, or None.
  """

  def __init__(self) -> None:
    """Creates a state without signals."""
    self.first: int | None = None
    self.second: int | None = None
    self._since = 0.0

  def add(self, number: int, now: float) -> None:
    """Adds a signal that arrived at `now`, seconds of a monotonic clock."""
    if number not in NUMBERS:
      return
    if self.first is None:
      self.first, self._since = number, now
      return
    least_seconds = (
      _SAME_REQUEST_SECONDS if number == self.first else _OTHER_REQUEST_SECONDS
    )
    if now - self._since > least_seconds:
      self.second = self.second or number


class SignalGuard:
  """Reads this process's signals in a thread, and ends the process in time.

  Attributes:
    reader: descriptor of the socket that receives the signals' numbers.
    writer: its other end, for `signal.set_wakeup_fd`.
    stop: state of the block that may save, or None.
    waits: names of blocks that wait for other processes, the innermost last.
    seconds: from the first signal to the end.
  """

  def __init__(self) -> None:
    """Starts the thread."""
    self.seconds = seconds()
    self.stop: Saves | None = None
    self.waits: list[str] = []
    self.reader, self.writer = _sockets(os.getpid())
    self._lock = threading.Lock()
    self._requests = Requests()
    self._deadline: float | None = None
    self._closed, self._close = os.pipe()
    self._thread = threading.Thread(target=self._read, daemon=True)
    with block_signals():
      self._thread.start()

  @property
  def taken(self) -> int | None:
    """The number of the first signal, or None."""
    with self._lock:
      if self._requests.first is not None:
        return self._requests.first
      # The thread may not have read it yet.
      return next((n for n in unread(self.reader) if n in NUMBERS), None)

  def close(self) -> None:
    """Ends the thread."""
    os.write(self._close, b'.')
    self._thread.join()
    os.close(self._close)
    os.close(self._closed)

  def _read(self) -> None:
    while True:
      left = None
      if self._deadline is not None:
        left = max(0.0, self._deadline - time.monotonic())
      ready, _, _ = select.select([self.reader, self._closed], [], [], left)
      if self._closed in ready:
        return
      if not ready:
        self._end()
        return
      with self._lock:
        for number in os.read(self.reader, 64):
          self._take(number)

  def _take(self, number: int) -> None:
    now, before = time.monotonic(), self._requests.first
    self._requests.add(number, now)
    if self._requests.second is not None:
      self._end()
    if before is None and self._requests.first is not None:
      self._deadline = now + self.seconds
      inform(taken=self._requests.first)

  def _end(self) -> None:
    first, second = self._requests.first, self._requests.second
    stop = self.stop
    words = last_words(
      self._requests,
      self.seconds,
      doing=[stop.doing if stop else '', *self.waits][-1],
      saved=stop.saved if stop else None,
      trains=stop is not None,
    )
    end(second or first or signal.SIGTERM, words)


def last_words(
  requests: Requests,
  time_limit: float,
  doing: str,
  saved: int | None,
  trains: bool,
) -> str:
  """Explains in one line why a process is ended.

  Args:
    requests: the received signals.
    time_limit: in seconds.
    doing: what the process waited for, or ''.
    saved: steps of the last checkpoint, <= 0 if there is none, None if other
      processes write checkpoints.
    trains: whether checkpoints are written.
  """
  what = doing or 'the current operation'
  name = signal.Signals(requests.second or requests.first or 15).name
  why = (
    f'expected {what} to end within {time_limit:g} s of {name}, it did not'
    if requests.second is None
    else f'received a second signal, {name}, while waiting for {what} to end'
  )
  if not trains:
    return f'error: stopped: {why}'
  if saved is None:
    checkpoint_note = 'the chief writes the checkpoints'
  elif saved > 0:
    checkpoint_note = f'the last checkpoint is from step {saved}'
  else:
    checkpoint_note = 'no checkpoint has been written'
  return f'error: stopped: {why}; {checkpoint_note}; the same command continues'


def end(number: int, words: str) -> None:
  """Prints the reason, and ends this process and all processes below it."""

  def say() -> None:
    # Avoids Python's buffers, and runs in a thread in case the reader hangs.
    with contextlib.suppress(OSError):
      os.write(2, f'{words}\n'.encode())

  speaker = threading.Thread(target=say, daemon=True)
  with contextlib.suppress(RuntimeError):
    speaker.start()
    speaker.join(_LAST_WORDS_SECONDS)
  kill_below(os.getpid())
  os._exit(EXIT_CODE + number)


def kill_below(process: int, spared: Collection[int] = ()) -> set[int]:
  """Kills all processes below one, by its number, on systems with /proc.

  Returns:
    The numbers of the killed processes, without those of `spared`.
  """
  killed: set[int] = set()
  # The next pass finds processes that started meanwhile.
  for _ in range(3):
    found = descendants(process) - killed - {*spared}
    for number in found:
      with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(number, signal.SIGKILL)
    killed |= found
  return killed


def descendants(ancestor: int) -> set[int]:
  """Returns the numbers of all processes below one; needs /proc."""
  children: dict[int, list[int]] = {}
  for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
    with contextlib.suppress(OSError, ValueError):
      # The program's name, in brackets, may contain any characters.
      state, parent = (
        path.read_text(errors='replace').rpartition(')')[2].split()[:2]
      )
      if state != 'Z':
        children.setdefault(int(parent), []).append(int(path.parent.name))
  found, waiting = set(), [ancestor]
  while waiting:
    new = children.get(waiting.pop(), [])
    found |= {*new}
    waiting += new
  return found


@functools.cache
def _sockets(process: int) -> tuple[int, int]:
  """Returns (reading, writing) descriptors that live as long as the process."""
  del process
  reader, writer = socket.socketpair()
  writer.setblocking(False)
  return reader.detach(), writer.detach()


def unread(reader: int) -> list[int]:
  """Returns the unread numbers of a guard's `reader` without removing them."""
  with (
    contextlib.suppress(OSError),
    socket.socket(fileno=os.dup(reader)) as duplicate,
  ):
    return [*duplicate.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT)]
  return []


_listeners: list[Callable[..., None]] = []


def listen(listener: Callable[..., None]) -> None:
  """Registers a function to call with news for another process.

  Args:
    listener: takes `taken`, the number of the first signal, after it arrived;
      or `blocked`, whether signals stay pending from now on.
  """
  _listeners.append(listener)


def inform(**news: Any) -> None:
  """Calls all listeners; see `listen` for the arguments."""
  for listener in _listeners:
    listener(**news)


@contextlib.contextmanager
def block_signals() -> Iterator[None]:
  """Blocks signals, also for threads that start in the block.

  It reinstalls the previous handlers at the end: TensorFlow replaces that of
  SIGTERM where processes join. Only the main thread can install handlers.
  """
  before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
  try:
    # This and `signal` call handlers of earlier signals, which may raise.
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    yield
  finally:
    try:
      _install_again()
    finally:
      signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _install_again() -> None:
  """Reinstalls Python's handlers, which other code may have replaced."""
  if threading.current_thread() is threading.main_thread():
    for number in NUMBERS:
      handler = signal.getsignal(number)
      if handler is not None:
        signal.signal(number, handler)


@contextlib.contextmanager
def forward() -> Iterator[None]:
  """Blocks signals like `block_signals`, but still calls Python's handlers.

  Use it around long code that starts threads. These threads never receive
  signals. The main thread calls its handlers as if nothing were blocked.
  """
  ended = threading.Event()

  def take() -> None:
    while not ended.is_set():
      received = signal.sigtimedwait(NUMBERS, _TAKE_SECONDS)
      if received is not None:
        _thread.interrupt_main(signal.Signals(received.si_signo))

  with block_signals():
    threading.Thread(target=take, daemon=True).start()
    try:
      yield
    finally:
      ended.set()
