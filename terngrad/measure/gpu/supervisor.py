"""Runs the parts of a check, each in a process with a time limit."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from terngrad import signals
from terngrad.children import endings
from terngrad.children import stderr_copy
from terngrad.measure.gpu import figures
from terngrad.measure.gpu import parts
from terngrad.measure.gpu import results

NO_DEVICE = 3  # Exit code of a part whose device does not exist.

Say = Callable[[str], None]
# Calls a function after some seconds; see `threading.Timer`.
MakeTimer = Callable[[float, Callable[[], None]], threading.Timer]


class PartOutcome(NamedTuple):
  """How the process of a part ended.

  Attributes:
    code: exit code, negative for a signal.
    is_late: whether it was killed at its time limit.
  """

  code: int
  is_late: bool


def run(
  chosen: Mapping[str, parts.CheckPart],
  commands: Mapping[str, Sequence[str]],
  found: results.CheckResults,
  say: Say,
  total: float = parts.TOTAL,
  make_timer: MakeTimer = threading.Timer,
) -> bool:
  """Runs parts one after the other, and prints their figures as they come.

  A part that fails or is killed at its limit does not end the check. Time that
  earlier parts did not need prolongs the limits of later ones.

  Args:
    chosen: the parts by name, in order.
    commands: command line of each part. It prints `figures.encode` lines.
    found: takes the figures. A part's errors are in its folder, NAME.log.
    say: takes lines for people.
    total: seconds of all parts; those that start later are skipped.
    make_timer: makes the timer of a part.

  Returns:
    False if the device does not exist: then no further part is run.
  """
  end = time.monotonic() + total
  later = sum(part.seconds for part in chosen.values())
  for name, part in chosen.items():
    now = time.monotonic()
    later -= part.seconds
    limit = min(end - now, max(part.seconds, end - now - later))
    if limit <= 0:
      found.end_part(name, f'{results.SKIPPED}: {total:g} s are over')
      continue
    say(f'=== {name}: {part.summary} (at most {limit:.0f} s)')
    log = found.folder / f'{name}.log'
    with (
      log.open('wb') as errors,
      subprocess.Popen(
        commands[name],
        stdout=subprocess.PIPE,
        stderr=errors,
        stdin=subprocess.DEVNULL,
        env=os.environ | signals.environment() | endings.environment(),
        start_new_session=True,
        text=True,
        errors='replace',
      ) as process,
    ):
      outcome = _follow(process, name, found, say, limit, make_timer)
    if outcome.code == NO_DEVICE and not outcome.is_late:
      say(log.read_text(errors='replace').strip())
      return False
    status = _describe(outcome, limit, time.monotonic() - now)
    if not status.startswith(results.DONE):
      lines = stderr_copy.last_lines(log.read_text(errors='replace'))
      advice = '' if outcome.is_late else _remedy(outcome.code, name)
      say('\n'.join([*lines, f'{name}: {status}; see {log}{advice}']))
    found.end_part(name, status)
  return True


def _follow(
  process: subprocess.Popen[str],
  name: str,
  found: results.CheckResults,
  say: Say,
  limit: float,
  make_timer: MakeTimer,
) -> PartOutcome:
  """Reads the lines of a process until it ends; kills it at the limit."""
  late = threading.Event()

  def kill() -> None:
    late.set()
    _kill(process)

  timer = make_timer(limit, kill)
  timer.daemon = True
  timer.start()
  try:
    for line in process.stdout or ():
      if figure := figures.decode(line):
        found.add(name, figure)
        say(f'{name}: {figure.line()}')
      else:
        say(line.rstrip('\n'))
    return PartOutcome(process.wait(), late.is_set())
  finally:
    timer.cancel()
    _kill(process)
    process.wait()


def _kill(process: subprocess.Popen[str]) -> None:
  """Kills a process and those that it started."""
  if process.returncode is None:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)


def _describe(outcome: PartOutcome, limit: float, seconds: float) -> str:
  """Returns how a part ended, in a sentence that starts with its status."""
  if outcome.is_late:
    return f'{results.KILLED} at its limit of {limit:.0f} s'
  if outcome.code:
    return f'{results.FAILED} with {endings.name_end(outcome.code)}'
  return f'{results.DONE} in {seconds:.0f} s'


def _remedy(code: int, name: str) -> str:
  """Returns what to do after a part that a signal killed; '' for others."""
  if endings.killed_by(code) is None:
    return ''
  advice = f'To run this part alone, use --parts={name}.'
  return f'. {endings.remedy(code, advice)}'
