"""Copies a child process's standard error, and keeps its last lines."""

import contextlib
import fcntl
import os
import select
import sys
import termios
import threading

from terngrad import signal_guard

_MOST_LINES = 10
_MOST_BYTES = 10**4
# The first line of Python's report of a crash, the first line about the thread
# that crashed, and the number of the lines to show of it.
_CRASH, _THREAD, _LINES_OF_THREAD = 'Fatal Python error', 'Current thread', 5
_READ_BYTES = 65536


class StderrCopy:
  """Copies the standard error of a process to that of this one.

  Attributes:
    writer: the descriptor for the process to write to. It is a terminal if
      this process writes to one, so that the process draws its progress bars.
  """

  def __init__(self) -> None:
    """Opens the descriptor and starts to read."""
    self._lines: list[str] | None = None
    self._reader, self.writer = _open_pair()
    os.set_blocking(self._reader, False)
    self._ended, self._end = os.pipe()
    self._kept = b''
    self._thread = threading.Thread(target=self._read, daemon=True)
    with signal_guard.block_signals():
      self._thread.start()

  def close(self) -> list[str]:
    """Copies what was written until now; returns the last lines."""
    if self._lines is not None:
      return self._lines
    os.write(self._end, b'.')
    self._thread.join()
    for each in (self._reader, self.writer, self._ended, self._end):
      os.close(each)
    self._lines = last_lines(self._kept.decode(errors='replace'))
    return self._lines

  def _read(self) -> None:
    while True:
      select.select([self._reader, self._ended], [], [])
      # Looks before it reads: what was written before `close` is copied.
      is_closing = bool(select.select([self._ended], [], [], 0)[0])
      while block := self._take():
        self._kept = (self._kept + block)[-_MOST_BYTES:]
        # Nobody may read what this program prints.
        with contextlib.suppress(OSError):
          os.write(2, block)
      if is_closing:
        return

  def _take(self) -> bytes:
    try:
      return os.read(self._reader, _READ_BYTES)
    except OSError:  # nothing to read at the moment
      return b''


def last_lines(text: str) -> list[str]:
  """Returns the last lines of an output, without empty ones.

  A progress bar draws its line many times; only the last one is shown. After a
  crash Python prints the calls of all threads; the innermost calls of the
  thread that crashed are shown, and the lines before the crash.
  """
  lines = [
    line.rstrip().rpartition('\r')[2]
    for line in text.replace('\r\n', '\n').split('\n')
  ]
  lines = [line for line in lines if line]
  crashes = [i for i, line in enumerate(lines) if line.startswith(_CRASH)]
  if crashes:
    begin = crashes[0] + 1
    thread = next(
      (i for i in range(begin, len(lines)) if lines[i].startswith(_THREAD)),
      begin,
    )
    lines = lines[:begin] + lines[thread : thread + _LINES_OF_THREAD]
  return lines[-_MOST_LINES:]


def _open_pair() -> tuple[int, int]:
  """Returns (reader, writer) of a terminal of this one's size, or a pipe."""
  if not sys.stderr.isatty():
    return os.pipe()
  reader, writer = os.openpty()
  with contextlib.suppress(OSError):
    size = fcntl.ioctl(2, termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(writer, termios.TIOCSWINSZ, size)
  return reader, writer
