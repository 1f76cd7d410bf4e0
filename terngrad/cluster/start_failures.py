"""Failures before a run starts: one process reports its own, the others end.

An entry is a line of text in the location of a rendezvous. Whoever can write
there can end the run's start, as with a wrong address. The text is bounded, and
messages quote it.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import NamedTuple
from typing import Protocol

from terngrad import signal_guard
from terngrad.cluster import spec as clusters

# Seconds for which a location shows a failure.
SHOWN_SECONDS = 60
# A process that starts again removes its failure. Seconds to wait for that.
RESTART_SECONDS = 10.0
# Resolution of the clocks of file systems and servers.
CLOCK_SECONDS = 0.01
MAX_REASON = 200
_POLL_SECONDS = 1.0


class StartFailure(NamedTuple):
  """A process that failed before the run started.

  Attributes:
    number: index of the process.
    reason: its error, as the location has it: untrusted text.
    seconds: when it failed, in seconds after this process wrote its address;
      negative if it failed before.
  """

  number: int
  reason: str
  seconds: float


class FailureEntries(Protocol):
  """The failures in a location, which raises errors as `Location.sync`."""

  def write_failure(self, index: int, count: int, reason: str) -> None:
    """Stores the failure of process `index` of `count`."""

  def read_failure(self, index: int, count: int) -> StartFailure | None:
    """Returns a failure of a process other than `index`, or None."""


class OtherProcessFailedError(clusters.ClusterError):
  """Another process of the run failed before it started."""


def shorten(error: BaseException) -> str:
  """Formats an error as a line of printable ASCII, to be stored."""
  text = ' '.join(str(error).split()) or type(error).__name__
  line = text.encode('unicode_escape').decode()
  return line if len(line) <= MAX_REASON else f'{line[: MAX_REASON - 3]}...'


def check(failure: StartFailure | None, waited: float) -> None:
  """Raises the error for a failure, unless its process may have come back.

  Args:
    failure: from a location.
    waited: seconds since this process wrote its address.

  Raises:
    OtherProcessFailedError: the failure is newer, or old and still there.
  """
  if failure and (failure.seconds > -CLOCK_SECONDS or waited > RESTART_SECONDS):
    raise OtherProcessFailedError(
      f'Rendezvous: expected all processes to start, received a failure of '
      f'process {failure.number}: {clusters.quote(failure.reason)}. Correct '
      'that, and start all processes again.'
    )


@contextlib.contextmanager
def watch(
  entries: FailureEntries,
  index: int,
  count: int,
  end: Callable[[str], object],
) -> Iterator[None]:
  """Looks for failures while a block runs.

  Args:
    entries: the location, after this process has joined.
    index: index of this process.
    count: number of processes.
    end: called in another thread with the message of the first failure.
  """
  over = threading.Event()
  begin = time.monotonic()

  def look() -> None:
    while not over.wait(_POLL_SECONDS):
      try:
        failure = entries.read_failure(index, count)
        check(failure, time.monotonic() - begin)
      except OtherProcessFailedError as error:
        if not over.is_set():
          end(str(error))
        return
      except (clusters.ClusterError, ConnectionError):
        # The location is no longer needed, and may be gone.
        continue

  with signal_guard.block_signals():
    threading.Thread(target=look, daemon=True).start()
  try:
    yield
  finally:
    over.set()
