"""Exit codes of a run's processes and the exit code of the run."""

import signal
from collections.abc import Iterable

from terngrad.cluster import watchdog

# A shell adds this to the number of the signal that ended a process.
SIGNALLED = 128
# Seconds that the other processes have to end without a signal after one was
# lost or its host became unreachable. A process that loses its connection may
# end before the process whose failure is the cause.
SETTLE_SECONDS = 30
# Exit codes of a process that a signal asked to end.
STOP_CODES = frozenset(
  SIGNALLED + n for n in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
)


def as_shell(code: int) -> int:
  """Converts Python's exit code to a shell's: SIGKILL, -9, becomes 137."""
  return SIGNALLED - code if code < 0 else code


def is_failure(code: int) -> bool:
  """Checks whether an exit code means a failure, not a loss or a signal.

  A failure decides the exit code of the run, whatever the other codes are.
  """
  return 0 < code < SIGNALLED and code != watchdog.LOST


def decisive(codes: Iterable[int]) -> int:
  """Chooses the exit code of a run from those of its processes.

  The order is: a failure, a signal that asked a process to end, a signal that
  killed one, the loss of another process. The first three cause such a loss.

  Returns:
    The first of these codes; 0 if all processes ended with 0.
  """

  def rank(code: int) -> int:
    if is_failure(code):
      return 4
    return 3 if code in STOP_CODES else 2 if code > SIGNALLED else bool(code)

  return max(codes, key=rank, default=0)
