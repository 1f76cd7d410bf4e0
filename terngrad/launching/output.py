"""Writes log lines and flushes them, so that a log can be followed."""

import sys
from collections.abc import Iterable
from typing import TextIO


def say(*lines: str) -> None:
  """Writes lines to standard output."""
  _write(sys.stdout, lines)


def warn(lines: Iterable[str]) -> None:
  """Writes lines to standard error."""
  _write(sys.stderr, lines)


def _write(stream: TextIO, lines: Iterable[str]) -> None:
  """Writes lines; escapes characters that the stream's encoding lacks."""
  encoding = stream.encoding or 'utf-8'
  for line in lines:
    written = line.encode(encoding, errors='backslashreplace')
    stream.write(f'{written.decode(encoding)}\n')
  stream.flush()
