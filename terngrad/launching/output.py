"""Lines for people, written at once so that a log can be followed."""

import sys
from collections.abc import Iterable


def say(line: str) -> None:
  """Writes a line to standard output."""
  sys.stdout.write(f'{_writable(line)}\n')
  sys.stdout.flush()


def warn(lines: Iterable[str]) -> None:
  """Writes lines to standard error."""
  sys.stderr.writelines(f'{_writable(line)}\n' for line in lines)
  sys.stderr.flush()


def _writable(line: str) -> str:
  """A line whose bytes may be no UTF-8, as those of a path."""
  return line.encode(errors='backslashreplace').decode()
