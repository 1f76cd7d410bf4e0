"""Runs that failed: a row each, so that no mean hides them.

A row stays when the run is made again and ends well: that a run diverges in one
of two attempts is a result. Where the machine was to blame, take it out.
"""

import re

from terngrad.sweep import definition

# What a program says last, in a run of several tasks behind its task's name.
_ERROR = re.compile(r'(?:\[[^\]]+\] )?error: (.*)')
# Characters; a row is a line that is read by people.
_LONGEST = 300


def row(
  cell: definition.Cell, code: int, log: str, flags: str
) -> dict[str, str | int]:
  """What a table says of a run that failed.

  Args:
    cell: the run.
    code: exit code of the command that failed; below 0 a signal's number.
    log: what that command wrote.
    flags: as in a row of the finished.

  Returns:
    variant, seed, code, error and flags: the first line of the log that
    says "error:", or else its last.
  """
  lines = [line.strip() for line in log.splitlines() if line.strip()]
  found = (match[1] for line in lines if (match := _ERROR.match(line)))
  return {
    'variant': cell.variant,
    'seed': cell.seed,
    'code': code,
    'error': next(found, lines[-1] if lines else '')[:_LONGEST],
    'flags': flags,
  }
