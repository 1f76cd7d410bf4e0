"""Processes of a measurement, started on this machine."""

import contextlib
import os
import subprocess
import time

from terngrad import signals
from terngrad.cli import command
from terngrad.launching import exit_codes


def run(commands, environments=None):
  """Starts commands side by side; the first one's end is the end of all.

  Args:
    commands: list of lists of words.
    environments: list of dicts, what each has beside this process's own
      environment; None for nothing.

  Returns:
    Exit code: the first command's where it failed, then that of the others that
    decides (`exit_codes.decisive`). Where the first one was lost, the others
    have `command.SETTLE` seconds to end, and one that failed decides.
  """
  environments = environments or [{}] * len(commands)
  started = [
    subprocess.Popen(words, env=os.environ | signals.environment() | more)
    for words, more in zip(commands, environments, strict=True)
  ]
  try:
    # The others may wait for ever for the first.
    code = exit_codes.as_shell(started[0].wait())
    if exit_codes.is_failure(code):
      return code
    end = time.monotonic() + command.SETTLE
    for one in started:
      with contextlib.suppress(subprocess.TimeoutExpired):
        one.wait(max(0.0, end - time.monotonic()) if code else None)
    codes = [one.poll() for one in started]
    return exit_codes.decisive(
      exit_codes.as_shell(each) for each in codes if each is not None
    )
  finally:
    for one in started:
      one.kill()
      one.wait()
