"""Lines for people, written at once so that a log can be followed."""

import sys
from collections.abc import Iterable


def say(line: str) -> None:
  """Writes a line to standard output."""
  sys.stdout.write(f'{line}\n')
  sys.stdout.flush()


def warn(lines: Iterable[str]) -> None:
  """Writes lines to standard error."""
  sys.stderr.writelines(f'{line}\n' for line in lines)
  sys.stderr.flush()
