"""Lines for people, written at once so that a log can be followed."""

import sys
from collections.abc import Iterable


def say(line: str) -> None:
  """Writes a line to standard output."""
  sys.stdout.write(f'{_writable(line, sys.stdout.encoding)}\n')
  sys.stdout.flush()


def warn(lines: Iterable[str]) -> None:
  """Writes lines to standard error."""
  encoding = sys.stderr.encoding
  sys.stderr.writelines(f'{_writable(line, encoding)}\n' for line in lines)
  sys.stderr.flush()


def _writable(line: str, encoding: str | None) -> str:
  """A line whose letters the output may not have, as those of a path."""
  encoding = encoding or 'utf-8'
  return line.encode(encoding, errors='backslashreplace').decode(encoding)
