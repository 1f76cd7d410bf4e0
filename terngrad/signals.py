"""SIGTERM and SIGINT end every program, whatever it waits for.

Python calls signal handlers in the main thread, and not before a call into C
returns: a step that waits for a stopped peer never does. The signal's number
arrives at once in the wakeup socket, where a thread of `obey` reads it. After
the first signal the program may save and end by itself; when the time is over,
or after a second signal, the thread ends it, and all processes below it.

Calls that hold Python's lock stop that thread too. Where TensorFlow makes them,
`cluster.watchdog` has another process look at the same socket.
"""

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

NUMBERS = (signal.SIGTERM, signal.SIGINT)
# Added to a signal's number, as shells do.
EXIT_CODE = 128
# Seconds from the first signal to the end of the process, in the environment.
# Schedulers often kill after 30. A program that starts others gives them less.
VARIABLE = 'TERNGRAD_STOP_SECONDS'
_DEFAULT, _LESS_FOR_CHILDREN, _LEAST = 28.0, 3.0, 1.0
# A terminal sends SIGINT to a script and to what it started, and the script may
# send SIGTERM at once: another signal in this time is the same request.
ONE_REQUEST_SECONDS = 2.0
_LAST_WORDS_SECONDS = 0.5


class Interrupted(KeyboardInterrupt):
  """A signal came where nothing is to be saved.

  Attributes:
    number: of the signal.
  """

  def __init__(self, number: int):
    """Remembers the signal."""
    super().__init__(signal.Signals(number).name)
    self.number = number


class Stop:
  """Remembers the first signal that asked to stop.

  Several equal processes stop after the same step: that before which one of
  them had been asked.

  Attributes:
    signal: its number, or None.
    doing: what may take long now, such as 'Step 3', for the last words.
    saved: steps of the last checkpoint, 0 for none, None where others know.
  """

  def __init__(self, alone: bool = True):
    """No signal has come yet.

    Args:
      alone: False where other processes have to agree, see `agree`.
    """
    self.signal: int | None = None
    self.doing = ''
    self.saved: int | None = None
    self._alone = alone
    self._agreed = 0

  def agree(self, result: Any) -> None:
    """Takes in what the `step.StepResult` of a step says of the others."""
    if not self._alone:
      self._agreed = int(result.stop)

  @property
  def agreed(self) -> int | None:
    """The signal to stop at now, or None."""
    return self.signal if self._alone else self._agreed or None


class Requests:
  """Tells a second request to stop from a first one.

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
    elif number == self.first or now - self._since > ONE_REQUEST_SECONDS:
      self.second = self.second or number


class Guard:
  """Reads this process's signals in a thread, and ends it in time.

  Attributes:
    reader: descriptor of a socket, where the signals' numbers come.
    writer: its other end, for `signal.set_wakeup_fd`.
    stop: the `Stop` of the block that may save, or None.
    seconds: from the first signal to the end.
  """

  def __init__(self) -> None:
    """Starts the thread."""
    self.seconds = seconds()
    self.stop: Stop | None = None
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
      _inform(taken=self._requests.first)

  def _end(self) -> None:
    first, second = self._requests.first, self._requests.second
    end(second or first or signal.SIGTERM, self._words())

  def _words(self) -> str:
    stop = self.stop or Stop()
    return last_words(
      self._requests, self.seconds, stop.doing, stop.saved, bool(self.stop)
    )


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
    saved: steps of the last checkpoint, 0 for none, None where others know.
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
  kept = 'the chief keeps the checkpoints'
  if saved is not None:
    kept = f'the last checkpoint is of step {saved}'
  if saved == 0:
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
    found = _descendants(process) - killed
    for number in found:
      with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(number, signal.SIGKILL)
    killed |= found


def _descendants(ancestor: int) -> set[int]:
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


_guards: list[Guard] = []
_listeners: list[Callable[..., None]] = []


def listen(listener: Callable[..., None]) -> None:
  """Calls a function with what another process has to know.

  Args:
    listener: takes `taken`, the number of the first signal, when it has come;
      or `blocked`, whether signals are kept pending from now on.
  """
  _listeners.append(listener)
  watch = guard()
  if watch and watch.taken is not None:
    listener(taken=watch.taken)


def _inform(**news: Any) -> None:
  for listener in _listeners:
    listener(**news)


def guard() -> Guard | None:
  """The `Guard` of this process, or None outside of `obey`."""
  return _guards[-1] if _guards else None


def taken() -> int | None:
  """The number of the first signal that came in `obey`, or None."""
  watch = guard()
  return watch and watch.taken


@contextlib.contextmanager
def obey() -> Iterator[None]:
  """Ends the process in time after a signal; see above.

  Raises:
    Interrupted: a signal came outside of a block of `stopping`.
  """
  if threading.current_thread() is not threading.main_thread() or _guards:
    yield
    return
  watch = Guard()
  _guards.append(watch)
  before = signal.set_wakeup_fd(watch.writer, warn_on_full_buffer=False)
  interrupted = []

  def interrupt(number: int, frame: Any) -> None:
    del frame
    # Once: what follows would cut short what the first one ends.
    if not interrupted:
      interrupted.append(number)
      raise Interrupted(number)

  previous = _handle(interrupt)
  try:
    yield
  finally:
    # After a signal the time runs on, until Python itself has ended.
    if watch.taken is None:
      _restore(previous)
      signal.set_wakeup_fd(before)
      _guards.remove(watch)
      watch.close()
    else:
      kill_below(os.getpid())


def _handle(handler: Callable[[int, Any], None]) -> dict[int, Any]:
  """Installs a handler; the ones of before."""
  return {number: signal.signal(number, handler) for number in NUMBERS}


def _restore(handlers: dict[int, Any]) -> None:
  for number, handler in handlers.items():
    signal.signal(number, handler)


@contextlib.contextmanager
def stopping(alone: bool = True) -> Iterator[Stop]:
  """Turns SIGTERM and SIGINT into a stop after the step; a second one kills.

  Args:
    alone: see `Stop`.
  """
  stop = Stop(alone)
  if threading.current_thread() is not threading.main_thread():
    yield stop
    return
  watch = guard()

  def handle(number: int, frame: Any) -> None:
    del frame
    stop.signal = stop.signal or number
    # A guard sees the second one too.
    if not watch:
      signal.signal(number, previous[number])

  previous = _handle(handle)
  if watch:
    watch.stop = stop
  try:
    yield stop
  finally:
    if watch:
      watch.stop = None
    _restore(previous)


def seconds() -> float:
  """From the first signal to the end of this process."""
  try:
    return max(_LEAST, float(os.environ[VARIABLE]))
  except (KeyError, ValueError):
    return _DEFAULT


def environment() -> dict[str, str]:
  """What a process that this one starts and waits for has to know.

  It ends before this one does, which can then say how.
  """
  return {VARIABLE: f'{max(_LEAST, seconds() - _LESS_FOR_CHILDREN):g}'}


@contextlib.contextmanager
def blocked() -> Iterator[None]:
  """Keeps signals pending, and from threads that start in the block.

  Handlers of before stand again after it: TensorFlow replaces that of SIGTERM
  where processes join. Only the main thread may install handlers.
  """
  before = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
  try:
    yield
  finally:
    if threading.current_thread() is threading.main_thread():
      for number in NUMBERS:
        handler = signal.getsignal(number)
        if handler is not None:
          signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def joining() -> Iterator[None]:
  """A block in which TensorFlow may hold Python's lock and take SIGTERM away.

  It has a handler of its own where processes join, which sets a mark that only
  its own callers look at. So signals stay pending, where another process sees
  them: see `cluster.bystander`.
  """
  if guard() is None:
    yield
    return
  _inform(blocked=True)
  try:
    with blocked():
      yield
  finally:
    _inform(blocked=False)
