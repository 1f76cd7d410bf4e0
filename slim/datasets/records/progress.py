"""Progress of long work: a bar on a terminal, lines in a log file."""

import math
import sys
from collections import abc
from typing import Any
from typing import TextIO

import tqdm

_SECONDS = 30  # between two lines in a file


class Progress(tqdm.tqdm):
  """A tqdm that writes whole lines, now and then, where no terminal is.

  What is done within half a minute leaves no line.
  """

  def __init__(self, *arguments: Any, **options: Any):
    """Begins; see `tqdm.tqdm` for the arguments."""
    self._in_lines = not sys.stderr.isatty()
    if self._in_lines:
      options |= {
        'mininterval': _SECONDS,
        # A line is due whatever the number of steps since the last.
        'miniters': 1,
        'delay': _SECONDS,
        'ncols': 79,
      }
    super().__init__(*arguments, **options)

  def close(self) -> None:
    """Ends; a bar stays, and lines need no end."""
    if self._in_lines:
      # tqdm ends what it has not begun to show without a word.
      self.delay = math.inf
    super().close()

  @staticmethod
  def status_printer(file: TextIO) -> abc.Callable[[str], None]:
    """A function that writes a state; see `tqdm.tqdm.status_printer`."""
    if file.isatty():
      return tqdm.tqdm.status_printer(file)

    def write(state: str) -> None:
      if state:
        file.write(f'{state}\n')
        file.flush()

    return write
