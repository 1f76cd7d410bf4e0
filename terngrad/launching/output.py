"""Writes log lines and flushes them, so that a log can be followed."""

import os
import sys
from collections.abc import Iterable
from typing import TextIO


def say(*lines: str) -> None:
  """Writes lines to standard output."""
  _write(sys.stdout, lines)


def try_say(*lines: str) -> None:
  """Writes lines to standard output; drops them if that is not possible.

  For programs that must go on: the reader of a pipe may have ended, or the disk
  of a log may be full.
  """
  try:
    say(*lines)
  except OSError:
    _empty_buffer(sys.stdout)


def warn(lines: Iterable[str]) -> None:
  """Writes lines to standard error."""
  _write(sys.stderr, lines)


def _empty_buffer(stream: TextIO) -> None:
  """Drops what was not written, which Python would write again at its end."""
  file = stream.fileno()
  kept = os.dup(file)
  with open(os.devnull, 'wb') as sink:
    os.dup2(sink.fileno(), file)
  stream.flush()
  os.dup2(kept, file)
  os.close(kept)


def _write(stream: TextIO, lines: Iterable[str]) -> None:
  """Writes lines; escapes characters that the stream's encoding lacks."""
  encoding = stream.encoding or 'utf-8'
  for line in lines:
    written = line.encode(encoding, errors='backslashreplace')
    stream.write(f'{written.decode(encoding)}\n')
  stream.flush()
