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
  """Checks whether an exit code means a failure, not a loss or a signal."""
  by_signal = SIGNALLED <= code < SIGNALLED + signal.NSIG
  return code > 0 and code != watchdog.LOST and not by_signal


def is_killed(code: int) -> bool:
  """Checks whether a signal killed a process that did not cause it itself.

  TensorFlow ends a process that lost another one by SIGABRT, so that is no
  cause.

  Args:
    code: negative as in `subprocess`, or a shell's. A shell's code of a signal
      that asks to end may be that of a process which obeyed it.
  """
  shell = as_shell(code)
  is_other = shell != SIGNALLED + signal.SIGABRT and not is_failure(shell)
  return code not in STOP_CODES and shell > SIGNALLED and is_other


def decisive(codes: Iterable[int]) -> int:
  """Chooses the exit code of a run from those of its processes.

  The order is: a signal that killed a process, a failure, a signal that asked a
  process to end, SIGABRT, the loss of another process. Each of them may cause
  those that follow.

  Args:
    codes: as for `is_killed`, in the order in which the processes ended.

  Returns:
    The first of these codes; 0 if all processes ended with 0.
  """

  def rank(code: int) -> int:
    if is_killed(code):
      return 5
    if is_failure(code):
      return 4
    return 3 if code in STOP_CODES else 1 if code == watchdog.LOST else 2

  return max(filter(None, codes), key=rank, default=0)
