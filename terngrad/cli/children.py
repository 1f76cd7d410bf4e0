"""Processes of a measurement, started on this machine."""

import os
import subprocess

from terngrad import signals


def run(commands, environments=None):
  """Starts commands side by side; the first one's end is the end of all.

  Args:
    commands: list of lists of words.
    environments: list of dicts, what each has beside this process's own
      environment; None for nothing.

  Returns:
    Exit code: the first command's where it failed, then the largest of others.
  """
  environments = environments or [{}] * len(commands)
  started = [
    subprocess.Popen(words, env=os.environ | signals.environment() | more)
    for words, more in zip(commands, environments, strict=True)
  ]
  try:
    # The others may wait for ever for the first.
    return abs(started[0].wait()) or max(abs(one.wait()) for one in started)
  finally:
    for one in started:
      one.kill()
