"""Runs a command of `terngrad` in a new process and returns its output."""

import os
import subprocess
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from terngrad import signals
from terngrad.children import endings


class Captured(NamedTuple):
  """How a process ended.

  Attributes:
    code: its exit code, as in `subprocess`.
    output: what it printed, standard error included.
  """

  code: int
  output: str


def run(
  words: Sequence[str], environment: Mapping[str, str] | None = None
) -> Captured:
  """Runs a command and waits; kills what it leaves.

  Args:
    words: the arguments of `terngrad`.
    environment: the environment variables; None for those of this process.
  """
  before = os.environ if environment is None else environment
  with (
    endings.kill_rest(),
    subprocess.Popen(
      [sys.executable, '-m', 'terngrad.cli.main', *words],
      stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      errors='replace',
      env={**before, **signals.environment(), **endings.environment()},
    ) as process,
  ):
    try:
      output, _ = process.communicate()
    except BaseException:
      process.kill()
      raise
  return Captured(process.returncode, output)
