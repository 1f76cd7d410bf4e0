"""Signals that ask to end, handled only between two calls to hosts.

If a signal interrupted a call, a started task could be left without a PID file.
"""

import contextlib
import select
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

from terngrad import signal_guard

_NUMBERS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def requests_to_end() -> list[signal.Signals]:
  """Returns the signals that ask to end; nohup, for one, ignores SIGHUP."""
  return [n for n in _NUMBERS if signal.getsignal(n) != signal.SIG_IGN]


class LaunchInterrupted(Exception):
  """The signal with this `number` asked the program to end."""

  def __init__(self, number: int) -> None:
    """Stores the number of the signal."""
    super().__init__(f'signal {number}')
    self.number = number


class Interruptions:
  """Delays signals until `check`, in a block of `delay_signals`."""

  def __init__(self) -> None:
    """Handles no signals yet."""
    self._number: int | None = None
    self._reader: socket.socket | None = None
    self._requests = signal_guard.Requests()
    self._at_once = False

  def check(self) -> None:
    """Raises `LaunchInterrupted` if a signal came; once for each request."""
    number, self._number = self._number, None
    if number is not None:
      raise LaunchInterrupted(number)

  def pause(self, seconds: float) -> None:
    """Waits; raises `LaunchInterrupted` as soon as a signal comes."""
    self.check()
    # The wakeup socket ends the wait when a signal comes.
    select.select([self._reader] if self._reader else [], [], [], seconds)
    self.check()

  @contextlib.contextmanager
  def delay_signals(self) -> Iterator[None]:
    """Delays signals in a block until `check`; ignored ones stay ignored."""
    self._reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    handlers = {
      number: signal.signal(number, self._handle)
      for number in requests_to_end()
    }
    try:
      yield
    finally:
      for number, handler in handlers.items():
        signal.signal(number, handler)
      signal.set_wakeup_fd(before)
      self._reader.close()
      writer.close()
      self._reader = self._number = None
      self._requests = signal_guard.Requests()

  @contextlib.contextmanager
  def interrupt_at_once(self) -> Iterator[None]:
    """Ends the block with `LaunchInterrupted` at the next request.

    Use it only in a block of `delay_signals`.
    """
    self._at_once = True
    try:
      self.check()
      yield
    finally:
      self._at_once = False

  def _handle(self, number: int, frame: Any) -> None:
    del frame
    if self._is_new(number):
      self._number = self._number or number
    if self._at_once:
      self.check()

  def _is_new(self, number: int) -> bool:
    """Checks whether a signal is a new request, as `signal_guard` decides."""
    now = time.monotonic()
    # `Requests` ignores SIGHUP.
    known = signal.SIGTERM if number == signal.SIGHUP else number
    first = self._requests.first is None
    self._requests.add(known, now)
    if not first and self._requests.second is None:
      return False
    # Compare later signals with this one.
    self._requests = signal_guard.Requests()
    self._requests.add(known, now)
    return True
