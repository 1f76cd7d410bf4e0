"""Signals that ask to end, looked at between two calls to hosts.

A call that a signal interrupted could leave a task that no PID file names.
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


class Interrupted(Exception):
  """A signal asked to end.

  Attributes:
    number: of the signal.
  """

  def __init__(self, number: int) -> None:
    """Keeps the number."""
    super().__init__(f'signal {number}')
    self.number = number


class Interruptions:
  """Keeps signals until `check`, while `heeded`."""

  def __init__(self) -> None:
    """Nothing is kept yet."""
    self._number: int | None = None
    self._reader: socket.socket | None = None
    self._requests = signal_guard.Requests()
    self._at_once = False

  def check(self) -> None:
    """Raises `Interrupted` where a signal came; once for each request."""
    number, self._number = self._number, None
    if number is not None:
      raise Interrupted(number)

  def pause(self, seconds: float) -> None:
    """Waits; raises `Interrupted` as soon as a signal comes."""
    self.check()
    # The wakeup socket ends the wait when a signal comes.
    select.select([self._reader] if self._reader else [], [], [], seconds)
    self.check()

  @contextlib.contextmanager
  def heeded(self) -> Iterator[None]:
    """A block whose signals wait for `check`; not those that are ignored."""
    self._reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    handlers = {
      number: signal.signal(number, self._keep)
      for number in _NUMBERS
      # As nohup leaves it.
      if signal.getsignal(number) != signal.SIG_IGN
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
  def at_once(self) -> Iterator[None]:
    """A block, while `heeded`, that the next request ends by `Interrupted`."""
    self._at_once = True
    try:
      self.check()
      yield
    finally:
      self._at_once = False

  def _keep(self, number: int, frame: Any) -> None:
    del frame
    if self._is_new(number):
      self._number = self._number or number
    if self._at_once:
      self.check()

  def _is_new(self, number: int) -> bool:
    """Whether a signal is of no request that is known, as a guard decides."""
    now = time.monotonic()
    # A guard leaves SIGHUP alone.
    known = signal.SIGTERM if number == signal.SIGHUP else number
    first = self._requests.first is None
    self._requests.add(known, now)
    if not first and self._requests.second is None:
      return False
    # What comes next is compared with this one.
    self._requests = signal_guard.Requests()
    self._requests.add(known, now)
    return True
