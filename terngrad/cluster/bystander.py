"""A second process obeys signals where Python's lock stops the first one.

`signals.obey` has a thread for that, which no more runs than any other while
TensorFlow holds the lock: as where a function goes to all tasks, or where
processes join. The other process peeks at the same socket. What the thread
does not read there it counts, and ends this process when the time is over.

The end is one of the C library: it reads a pipe for each exit code by
aio_read(3), and calls `_exit` with the code when the other process writes to
it.
"""

import contextlib
import ctypes
import functools
import math
import os
import pathlib
import signal
import sys
import time

from terngrad import signal_guard

# A thread that runs reads at once; on a busy machine it may take longer.
_LATER_SECONDS = 1.0
# The thread's own end comes first.
_AFTER_THREAD_SECONDS = 2.0
_LOOK_EVERY = 0.2
THREAD = 2  # SIGEV_THREAD


class Value(ctypes.Union):
  """`union sigval`."""

  _fields_ = [('number', ctypes.c_int), ('pointer', ctypes.c_void_p)]


class Event(ctypes.Structure):
  """`struct sigevent` of Linux, 64 bytes."""

  _fields_ = [
    ('value', Value),
    ('signal', ctypes.c_int),
    ('notify', ctypes.c_int),
    ('function', ctypes.c_void_p),
    ('attributes', ctypes.c_void_p),
    ('rest', ctypes.c_char * 32),
  ]


class _Read(ctypes.Structure):
  """`struct aiocb` of glibc, with more room at its end than it has."""

  _fields_ = [
    ('descriptor', ctypes.c_int),
    ('operation', ctypes.c_int),
    ('priority', ctypes.c_int),
    ('buffer', ctypes.c_void_p),
    ('size', ctypes.c_size_t),
    ('event', Event),
    ('rest', ctypes.c_char * 256),
  ]


@functools.cache
def library(*functions: str) -> ctypes.CDLL | None:
  """The C library that has these functions, or None."""
  for name in (None, 'librt.so.1'):
    with contextlib.suppress(AttributeError, OSError):
      found = ctypes.CDLL(name)
      for function in functions:
        getattr(found, function)
      return found
  return None


def exits_with(code: int) -> Event:
  """What has a thread of the C library end this process with a code."""
  event = Event(value=Value(number=code), notify=THREAD)
  event.function = ctypes.cast(ctypes.CDLL(None)._exit, ctypes.c_void_p)
  return event


# What the C library reads into, and the ends of the pipes: for ever.
_kept: list[tuple[_Read, ctypes.Array[ctypes.c_char], int]] = []


def exit_pipe(code: int) -> int | None:
  """A descriptor; a byte that is written to it ends this process.

  Args:
    code: the exit code.

  Returns:
    None where the C library cannot.
  """
  found = library('aio_read') if sys.platform == 'linux' else None
  if found is None:
    return None
  receiving, sending = os.pipe()
  buffer = ctypes.create_string_buffer(1)
  request = _Read(
    descriptor=receiving,
    buffer=ctypes.addressof(buffer),
    size=1,
    event=exits_with(code),
  )
  if found.aio_read(ctypes.byref(request)):
    os.close(receiving)
    os.close(sending)
    return None
  _kept.append((request, buffer, receiving))
  return sending


class Bystander:
  """Obeys the signals that another process does not take.

  Attributes:
    blocked: whether that process keeps its signals pending, as while it joins:
      it has nothing to save then.
    requests: what `look` saw last.
  """

  def __init__(
    self,
    process: int,
    reader: int,
    seconds: float,
    exits: dict[int, int | None],
  ) -> None:
    """Begins to look.

    Args:
      process: its number.
      reader: descriptor of `signal_guard.Guard.reader`.
      seconds: from the first signal to the end.
      exits: number of a signal to what `exit_pipe` returned there.
    """
    self.blocked = False
    self._process = process
    self._reader = reader
    self._seconds = seconds
    self.requests = signal_guard.Requests()
    self._exits = exits
    self._taken: int | None = None
    self._took_at = 0.0
    self._seen: list[tuple[float, int]] = []

  @property
  def within(self) -> float:
    """Seconds that the process has from a first signal on."""
    return _LATER_SECONDS if self.blocked else self._seconds

  def take(self, number: int) -> None:
    """Learns that the process's own thread has read the first signal."""
    self._taken, self._took_at = number, time.monotonic()

  @property
  def sources(self) -> list[int]:
    """What to wait for, beside `patience`."""
    return [] if self._seen else [self._reader]

  @property
  def patience(self) -> float:
    """Seconds until `look` has to be called; `sources` may say so before."""
    if self._seen or self.blocked:
      return _LOOK_EVERY
    return math.inf if self._taken is None else _AFTER_THREAD_SECONDS

  def look(self) -> int | None:
    """The number of the signal by which the process has to end now, or None."""
    now = time.monotonic()
    waiting = signal_guard.unread(self._reader) + self._pending()
    self._seen = [
      self._seen[i] if i < len(self._seen) else (now, number)
      for i, number in enumerate(waiting)
    ]
    self.requests = requests = signal_guard.Requests()
    if self._taken is not None:
      requests.add(self._taken, self._took_at)
    last = self._took_at + self._seconds + _AFTER_THREAD_SECONDS
    for when, number in self._seen:
      requests.add(number, when)
      if self._taken is None:
        last = self._seen[0][0] + self._seconds
      if requests.second is not None or self.blocked:
        last = when + _LATER_SECONDS
        break
    if requests.first is None or now < last:
      return None
    return requests.second or requests.first

  def end(self, number: int) -> None:
    """Ends the process as if by a signal."""
    sending = self._exits.get(number)
    with contextlib.suppress(OSError):
      if sending is None:
        os.kill(self._process, signal.SIGKILL)
      else:
        os.write(sending, b'.')

  def _pending(self) -> list[int]:
    """The signals that wait until the process takes any again."""
    if not self.blocked:
      return []
    with contextlib.suppress(OSError, IndexError, ValueError):
      status = pathlib.Path(f'/proc/{self._process}/status').read_text()
      mask = int(status.partition('\nShdPnd:')[2].split()[0], 16)
      return [n for n in signal_guard.NUMBERS if mask >> (n - 1) & 1]
    return []
