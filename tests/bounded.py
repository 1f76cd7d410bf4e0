"""Limits on what a block of a test may take."""

import contextlib
import pathlib
import re
import signal


def _peak():
  """The most memory that this process had since it was last forgotten."""
  status = pathlib.Path('/proc/self/status').read_text()
  return 1024 * int(re.search(r'VmHWM:\s+(\d+) kB', status)[1])


@contextlib.contextmanager
def memory(limit):
  """Fails where a block takes more than `limit` bytes besides what there is."""
  pathlib.Path('/proc/self/clear_refs').write_text('5')
  before = _peak()
  yield
  taken = _peak() - before
  assert taken <= limit, f'expected at most {limit} bytes, took {taken}'


class TooLongError(BaseException):
  """A block takes too long; no `except Exception` holds it up."""


@contextlib.contextmanager
def seconds(limit):
  """Fails where a block takes more than `limit` seconds of this process."""

  def fail(signum, frame):
    raise TooLongError(f'expected at most {limit} seconds')

  before = signal.signal(signal.SIGVTALRM, fail)
  signal.setitimer(signal.ITIMER_VIRTUAL, limit)
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)
