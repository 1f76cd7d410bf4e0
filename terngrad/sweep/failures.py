"""Rows for failed runs, so that means do not hide them.

A row stays if the run is repeated and succeeds: that a run diverges in one of
two attempts is a result. Remove the row if the machine caused the failure.
"""

import re

from terngrad.sweep import definition

# An error line; in a run of several tasks the task's label precedes it.
_ERROR = re.compile(r'(?:\[[^\]]+\] )?error: (.*)')
# Characters; people read a row as one line.
_LONGEST = 300


def row(
  cell: definition.Cell, code: int, log: str, flags: str
) -> dict[str, str | int]:
  """Returns the table row of a failed run.

  Args:
    cell: the run.
    code: exit code of the failed command; below 0 the negated signal number.
    log: output of that command.
    flags: flags of the run, as in the table of finished runs.

  Returns:
    variant, seed, code, error and flags. The error is the first line of the log
    that starts with "error:", or the last line if there is none.
  """
  return {
    'variant': cell.variant,
    'seed': cell.seed,
    'code': code,
    'error': cause(log)[:_LONGEST],
    'flags': flags,
  }


def cause(log: str) -> str:
  """Returns the whole line of a log that a row has as its error."""
  lines = [line.strip() for line in log.splitlines() if line.strip()]
  found = (match[1] for line in lines if (match := _ERROR.match(line)))
  return next(found, lines[-1] if lines else '')
