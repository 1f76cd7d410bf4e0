"""What the exit codes of a run's processes mean, and which one is the run's."""

import signal
from collections.abc import Iterable

from terngrad.cluster import watchdog

# Added to a signal's number, as shells do.
SIGNALLED = 128
# Seconds that the processes of a run have to end without a signal once one of
# them was lost, or its host cannot be reached: one that lost another process
# may end before that one has failed.
SETTLE = 30
# Of a process that somebody asked to end.
ASKED = frozenset(
  SIGNALLED + n for n in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
)


def as_shell(code: int) -> int:
  """An exit code as a shell says it: 137 for SIGKILL, where Python says -9."""
  return SIGNALLED - code if code < 0 else code


def is_failure(code: int) -> bool:
  """Whether an exit code is of a process that failed, and was not just lost.

  Such a code decides what the run ends with, whatever the others' codes are.
  """
  return 0 < code < SIGNALLED and code != watchdog.LOST


def decisive(codes: Iterable[int]) -> int:
  """The exit code of a run by those of its processes.

  A failure comes before a signal that asked one to end, that before a signal
  that killed one, and all of them before the loss of another process, which
  they cause.
  """

  def rank(code: int) -> int:
    if is_failure(code):
      return 4
    return 3 if code in ASKED else 2 if code > SIGNALLED else bool(code)

  return max(codes, key=rank, default=0)
