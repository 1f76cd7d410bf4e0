"""Shows the progress of long work: a bar on a terminal, lines in a log."""

import math
import sys
from collections import abc
from typing import Any
from typing import TextIO

import tqdm

_SECONDS = 30  # between two lines in a log file


class Progress(tqdm.tqdm):
  """A tqdm that writes whole lines if standard error is not a terminal.

  It writes a line every 30 seconds. Work that takes less than 30 seconds
  writes none.
  """

  def __init__(self, *arguments: Any, **options: Any):
    """Takes the arguments of `tqdm.tqdm`."""
    self._in_lines = not sys.stderr.isatty()
    if self._in_lines:
      options |= {
        'mininterval': _SECONDS,
        # Write a line regardless of the number of iterations since the last.
        'miniters': 1,
        'delay': _SECONDS,
        'ncols': 79,
      }
    super().__init__(*arguments, **options)

  def close(self) -> None:
    """Closes the bar; a log file gets no final line."""
    if self._in_lines:
      # tqdm closes silently if it is still within its delay.
      self.delay = math.inf
    super().close()

  def say(self, line: str) -> None:
    """Prints a line to standard output, above the bar on a terminal."""
    if self._in_lines:
      sys.stdout.write(f'{line}\n')
    else:
      self.write(line, file=sys.stdout)
    sys.stdout.flush()

  @staticmethod
  def status_printer(file: TextIO) -> abc.Callable[[str], None]:
    """Returns a function that writes a status, a line for each in a log."""
    if file.isatty():
      return tqdm.tqdm.status_printer(file)

    def write(state: str) -> None:
      if state:
        file.write(f'{state}\n')
        file.flush()

    return write
