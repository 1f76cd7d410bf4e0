"""Signals that ask to end, looked at between two calls to hosts.

A call that a signal interrupted could leave a task that no PID file names.
"""

import contextlib
import select
import signal
import socket
from collections.abc import Iterator
from typing import Any

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

  def check(self) -> None:
    """Raises `Interrupted` where a signal came."""
    if self._number is not None:
      raise Interrupted(self._number)

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

  def _keep(self, number: int, frame: Any) -> None:
    del frame
    self._number = self._number or number


@contextlib.contextmanager
def deadly() -> Iterator[None]:
  """A block in which a signal, the second one, ends the process at once."""
  before = signal.set_wakeup_fd(-1)
  handlers = {
    number: signal.signal(number, signal.SIG_DFL)
    for number in _NUMBERS
    if signal.getsignal(number) != signal.SIG_IGN
  }
  try:
    yield
  finally:
    for number, handler in handlers.items():
      signal.signal(number, handler)
    signal.set_wakeup_fd(before)
