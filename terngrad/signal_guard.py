"""The thread that reads a process's signals, and the process's end.

See `signals.obey`, which starts it.
"""

import _thread
import contextlib
import functools
import os
import pathlib
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import Protocol

NUMBERS = (signal.SIGTERM, signal.SIGINT)
# Added to a signal's number, as shells do.
EXIT_CODE = 128
# Seconds from the first signal to the end of the process, in the environment.
VARIABLE = 'TERNGRAD_STOP_SECONDS'
# Schedulers often kill after 30.
_DEFAULT, LEAST, _MOST = 27.0, 1.0, 1e6
# One request may send several signals. The same one comes twice where systemd
# or Slurm send it to all processes of a job, and `terngrad launch` passes it
# on; another one comes where a terminal sends SIGINT to a script and to what it
# started, and the script sends SIGTERM.
_SAME_REQUEST_SECONDS = 1.0
_OTHER_REQUEST_SECONDS = 2.0
_LAST_WORDS_SECONDS = 0.5
# That a thread of `passed_on` may outlive its block.
_TAKE_SECONDS = 0.1


def seconds() -> float:
  """From the first signal to the end of this process."""
  try:
    return min(_MOST, max(LEAST, float(os.environ[VARIABLE])))
  except (KeyError, ValueError):
    return _DEFAULT


class Saves(Protocol):
  """A block of `signals.stopping`: what it waits for, and what is saved."""

  doing: str
  saved: int | None


class Requests:
  """Distinguishes a second request to stop from the first.

  Attributes:
    first: number of the first signal, or None.
    second: number of the signal that asked again, or None.
  """

  def __init__(self) -> None:
    """No signal has come yet."""
    self.first: int | None = None
    self.second: int | None = None
    self._since = 0.0

  def add(self, number: int, now: float) -> None:
    """Takes in a signal that came at `now`, seconds of a monotonic clock."""
    if number not in NUMBERS:
      return
    if self.first is None:
      self.first, self._since = number, now
      return
    within = (
      _SAME_REQUEST_SECONDS if number == self.first else _OTHER_REQUEST_SECONDS
    )
    if now - self._since > within:
      self.second = self.second or number


class Guard:
  """Reads this process's signals in a thread, and ends it in time.

  Attributes:
    reader: descriptor of a socket, where the signals' numbers come.
    writer: its other end, for `signal.set_wakeup_fd`.
    stop: of the block that may save, or None.
    waits: names of what waits for others now, the last one innermost.
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
    with blocked():
      self._thread.start()

  @property
  def taken(self) -> int | None:
    """The number of the first signal, or None."""
    with self._lock:
      if self._requests.first is not None:
        return self._requests.first
      # The thread may not have come to it yet.
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
  within: float,
  doing: str,
  saved: int | None,
  trains: bool,
) -> str:
  """Why a process is ended, as a line.

  Args:
    requests: what came.
    within: seconds that it had.
    doing: what it waited for, or ''.
    saved: steps of the last checkpoint, <= 0 for none, None where others know.
    trains: whether checkpoints are written.
  """
  what = doing or 'what it does'
  name = signal.Signals(requests.second or requests.first or 15).name
  why = (
    f'expected {what} to end within {within:g} s of {name}, it did not'
    if requests.second is None
    else f'a second signal, {name}, while it waited for {what} to end'
  )
  if not trains:
    return f'error: stopped: {why}'
  if saved is None:
    kept = 'the chief keeps the checkpoints'
  elif saved > 0:
    kept = f'the last checkpoint is of step {saved}'
  else:
    kept = 'no checkpoint has been written'
  return f'error: stopped: {why}; {kept}; the same command continues'


def end(number: int, words: str) -> None:
  """Says why, ends all processes below this one, and ends it."""

  def say() -> None:
    # Neither Python's buffers nor a reader that is asleep may hold it up.
    with contextlib.suppress(OSError):
      os.write(2, f'{words}\n'.encode())

  speaker = threading.Thread(target=say, daemon=True)
  with contextlib.suppress(RuntimeError):
    speaker.start()
    speaker.join(_LAST_WORDS_SECONDS)
  kill_below(os.getpid())
  os._exit(EXIT_CODE + number)


def kill_below(process: int) -> None:
  """Ends all processes below one, by its number, where there is a /proc."""
  killed: set[int] = set()
  # What is started meanwhile is found the next time.
  for _ in range(3):
    found = descendants(process) - killed
    for number in found:
      with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(number, signal.SIGKILL)
    killed |= found


def descendants(ancestor: int) -> set[int]:
  """The numbers of all processes below one, where there is a /proc."""
  children: dict[int, list[int]] = {}
  for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
    with contextlib.suppress(OSError, ValueError):
      # The name of the program, in brackets, may have any letters.
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
  """(For reading, for writing) of a process, for as long as it lives."""
  del process
  reader, writer = socket.socketpair()
  writer.setblocking(False)
  return reader.detach(), writer.detach()


def unread(reader: int) -> list[int]:
  """The numbers that wait in a `Guard.reader`, and stay there."""
  with (
    contextlib.suppress(OSError),
    socket.socket(fileno=os.dup(reader)) as own,
  ):
    return [*own.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT)]
  return []


_listeners: list[Callable[..., None]] = []


def listen(listener: Callable[..., None]) -> None:
  """Calls a function with what another process has to know.

  Args:
    listener: takes `taken`, the number of the first signal, when it has come;
      or `blocked`, whether signals are kept pending from now on.
  """
  _listeners.append(listener)


def inform(**news: Any) -> None:
  """Calls all listeners; see `listen`."""
  for listener in _listeners:
    listener(**news)


@contextlib.contextmanager
def blocked() -> Iterator[None]:
  """Keeps signals pending, and from threads that start in the block.

  Handlers of before stand again after it: TensorFlow replaces that of SIGTERM
  where processes join. Only the main thread may install handlers.
  """
  before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
  try:
    # This and `signal` call handlers of what came before, which may raise.
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    yield
  finally:
    try:
      _install_again()
    finally:
      signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _install_again() -> None:
  """Installs Python's handlers where others may have put theirs."""
  if threading.current_thread() is threading.main_thread():
    for number in NUMBERS:
      handler = signal.getsignal(number)
      if handler is not None:
        signal.signal(number, handler)


@contextlib.contextmanager
def passed_on() -> Iterator[None]:
  """`blocked`, but a thread takes the signals and calls Python's handlers.

  For what starts threads and takes long: they leave signals alone for ever, and
  the main thread has its handlers called as if nothing were blocked.
  """
  ended = threading.Event()

  def take() -> None:
    while not ended.is_set():
      came = signal.sigtimedwait(NUMBERS, _TAKE_SECONDS)
      if came is not None:
        _thread.interrupt_main(signal.Signals(came.si_signo))

  with blocked():
    threading.Thread(target=take, daemon=True).start()
    try:
      yield
    finally:
      ended.set()
