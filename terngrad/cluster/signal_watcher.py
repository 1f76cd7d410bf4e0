"""A second process that handles signals while Python's lock is held.

`signals.obey` has a thread that handles signals. Like all Python threads, it
does not run while TensorFlow holds the lock, for instance where a function is
sent to all tasks or where processes join. The second process peeks at the same
socket. It sees the signals that the thread does not read, and ends this process
when the time limit is over.

The C library ends the process. For each exit code it reads from a pipe by
aio_read(3), and calls `_exit` with the code when the second process writes to
that pipe.
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

# Seconds for the thread to read a signal, with a margin for busy machines.
_LATER_SECONDS = 1.0
# Seconds of margin, so that the thread ends the process first if it can.
_AFTER_THREAD_SECONDS = 2.0
_POLL_SECONDS = 0.2
THREAD = 2  # SIGEV_THREAD


class SignalValue(ctypes.Union):
  """`union sigval`."""

  _fields_ = [('number', ctypes.c_int), ('pointer', ctypes.c_void_p)]


class Event(ctypes.Structure):
  """`struct sigevent` of Linux, 64 bytes."""

  _fields_ = [
    ('value', SignalValue),
    ('signal', ctypes.c_int),
    ('notify', ctypes.c_int),
    ('function', ctypes.c_void_p),
    ('attributes', ctypes.c_void_p),
    ('rest', ctypes.c_char * 32),
  ]


class _Read(ctypes.Structure):
  """`struct aiocb` of glibc, with spare room at its end."""

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
  """Returns the C library if it has these functions, else None."""
  for name in (None, 'librt.so.1'):
    with contextlib.suppress(AttributeError, OSError):
      found = ctypes.CDLL(name)
      for function in functions:
        getattr(found, function)
      return found
  return None


def exit_event(code: int) -> Event:
  """Returns an event whose C thread ends this process with a code."""
  event = Event(value=SignalValue(number=code), notify=THREAD)
  event.function = ctypes.cast(ctypes.CDLL(None)._exit, ctypes.c_void_p)
  return event


# The C library's buffers and the pipes' reading ends, which are never freed.
_never_freed: list[tuple[_Read, ctypes.Array[ctypes.c_char], int]] = []


def exit_pipe(code: int) -> int | None:
  """Creates a pipe; writing a byte to it ends this process.

  Args:
    code: the exit code.

  Returns:
    The descriptor to write to; None if the C library does not support it.
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
    event=exit_event(code),
  )
  if found.aio_read(ctypes.byref(request)):
    os.close(receiving)
    os.close(sending)
    return None
  _never_freed.append((request, buffer, receiving))
  return sending


class SignalWatcher:
  """Handles the signals that another process does not read.

  Attributes:
    blocked: whether the other process blocks signals, as while it joins. It has
      nothing to save then.
    requests: the requests that `poll` found last.
  """

  def __init__(
    self,
    process: int,
    reader: int,
    seconds: float,
    exits: dict[int, int | None],
  ) -> None:
    """Starts to watch a process.

    Args:
      process: number of the process.
      reader: descriptor of `signal_guard.SignalGuard.reader`.
      seconds: from the first signal to the end.
      exits: for the number of each signal the result of `exit_pipe` there.
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
  def seconds_to_end(self) -> float:
    """Seconds between the first signal and the end of the process."""
    return _LATER_SECONDS if self.blocked else self._seconds

  def record_first(self, number: int) -> None:
    """Records that the process's thread has read the first signal."""
    self._taken, self._took_at = number, time.monotonic()

  @property
  def sources(self) -> list[int]:
    """Descriptors to wait for, besides the time of `patience`."""
    return [] if self._seen else [self._reader]

  @property
  def patience(self) -> float:
    """Seconds until the next call of `poll`, or less if `sources` is ready."""
    if self._seen or self.blocked:
      return _POLL_SECONDS
    return math.inf if self._taken is None else _AFTER_THREAD_SECONDS

  def poll(self) -> int | None:
    """Returns the signal by which the process has to end now, or None."""
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
    """Returns the signals that are pending in the process."""
    if not self.blocked:
      return []
    with contextlib.suppress(OSError, IndexError, ValueError):
      status = pathlib.Path(f'/proc/{self._process}/status').read_text()
      mask = int(status.partition('\nShdPnd:')[2].split()[0], 16)
      return [n for n in signal_guard.NUMBERS if mask >> (n - 1) & 1]
    return []
