"""Writes log lines and flushes them, so that a log can be followed."""

import os
import sys
from collections.abc import Iterable
from typing import TextIO


class LostOutputError(OSError):
  """Standard output cannot be written, for example on a full disk."""


def say(*lines: str) -> None:
  """Writes lines to standard output."""
  _write(sys.stdout, lines)


def try_say(*lines: str) -> bool:
  """Writes lines to standard output; drops them if that is not possible.

  For programs that must go on: the reader of a pipe may have ended, or the disk
  of a log may be full.

  Returns:
    Whether the lines were written.
  """
  try:
    say(*lines)
  except OSError:
    _empty_buffer(sys.stdout)
    return False
  return True


def open_missing() -> None:
  """Opens the null device in place of streams that a shell closed (`>&-`)."""
  for name in ('stdout', 'stderr'):
    if getattr(sys, name) is None:
      setattr(sys, name, open(os.devnull, 'w', encoding='utf-8'))


def warn(lines: Iterable[str]) -> None:
  """Writes lines to standard error."""
  _write(sys.stderr, lines)


def discard() -> None:
  """Drops what standard output could not write, and all that follows."""
  with open(os.devnull, 'wb') as sink:
    os.dup2(sink.fileno(), sys.stdout.fileno())


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
  try:
    for line in lines:
      written = line.encode(encoding, errors='backslashreplace')
      stream.write(f'{written.decode(encoding)}\n')
    stream.flush()
  except BrokenPipeError:
    raise
  except OSError as error:
    raise LostOutputError(error.errno, error.strerror) from error
