"""Looks after the tasks of an experiment until they end.

One program, on the machine that started them, decides for all of them: tasks
that were restarted one by one, each by its host, could meet what is left of the
others' last attempt. It needs no more than the hosts do already: ssh, PID files
and exit codes.
"""

import os
import re
import time
from typing import NamedTuple

from terngrad import signal_guard
from terngrad.cluster import watchdog
from terngrad.launching import exit_codes
from terngrad.launching import experiment as experiments
from terngrad.launching import interruptions as interruptions_lib
from terngrad.launching import output
from terngrad.launching import remote

# Seconds that the others have to end without a signal once a task was lost, in
# the environment.
SETTLE_VARIABLE = 'TERNGRAD_SETTLE_SECONDS'
# Seconds between two looks.
_LOOK_EVERY = 2.0
# Seconds that a task has to end; nothing is lost by killing it after that.
_GRACE = 10
# The same after a task's time to save and end, see `signal_guard.seconds`.
_AFTER_SAVING = 2
_NOBODY = 'a host cannot be reached'
_STOPPED = exit_codes.SIGNALLED + 15
_STATE = re.compile(
  r'[a-z]+_[0-9]+ on [^ ]+: (running|stopped|ended)'
  r'( \((process|exit code) ([0-9]+)\))?'
)
_CUT = re.compile(r'tunnel to .*: ended, log .*')


class Look(NamedTuple):
  """How all tasks and tunnels are.

  Attributes:
    running: how many tasks run.
    unknown: how many say nothing.
    failed: the line of a task that failed, or ''.
    stopped: of one that was asked to end.
    lost: of one that was killed or lost another one, or of a tunnel.
    code: exit code of the one that failed.
  """

  running: int = 0
  unknown: int = 0
  failed: str = ''
  stopped: str = ''
  lost: str = ''
  code: int = 0

  def add(self, line: str) -> 'Look':
    """With what a line says of a task; shells may say more."""
    found = _STATE.fullmatch(line)
    if not found:
      return self
    known = self._replace(unknown=self.unknown - 1)
    code = int(found[4]) if found[4] else None
    if found[1] == 'running':
      return known._replace(running=self.running + 1)
    if found[1] == 'stopped' or code in (130, _STOPPED):
      return known._replace(stopped=line)
    if code == 0:
      return known
    if code is None or not exit_codes.is_failure(code):
      # Killed, or its host restarted: it could not say why.
      return known._replace(lost=line)
    return known._replace(failed=line, code=code)


def settle() -> float:
  """Seconds that the others have to end, see `SETTLE_VARIABLE`."""
  try:
    return max(0.0, float(os.environ[SETTLE_VARIABLE]))
  except (KeyError, ValueError):
    return exit_codes.SETTLE


def look(experiment: experiments.Experiment) -> Look:
  """Asks for all tasks and tunnels."""
  found = Look(unknown=len(experiment.tasks))
  for line in remote.each(experiment.status, experiment.tasks).lines:
    found = found.add(line)
  cut = [x for x in experiment.tunnels.status().lines if _CUT.fullmatch(x)]
  # It does not come back by itself, and tasks may wait for each other for long.
  if cut and (found.lost or found.running):
    found = found._replace(lost=cut[-1])
  return found


class Watch:
  """Starts all tasks, and all again where one was lost."""

  def __init__(
    self,
    experiment: experiments.Experiment,
    interruptions: interruptions_lib.Interruptions,
    restarts: int,
  ) -> None:
    """Watches nothing yet.

    Args:
      experiment: its tasks have been started.
      interruptions: are heeded.
      restarts: how often at most.
    """
    self._experiment = experiment
    self._interruptions = interruptions
    self._restarts = restarts
    self._settle = settle()

  def run(self) -> int:
    """The exit code of the run; returns when it has ended."""
    for restart in range(1, self._restarts + 2):
      found = self._wait_for_end()
      if found.failed:
        say(f'{found.failed}; stopping the others')
        self._experiment.end_all(_GRACE)
        return found.code
      if found.stopped:
        say(f'{found.stopped}: somebody stopped it')
        self._experiment.close_tunnels()
        return _STOPPED
      if not found.lost and not found.unknown:
        say('all tasks are done')
        self._experiment.close_tunnels()
        return 0
      if not self._again(found.lost or _NOBODY, restart):
        break
    self._experiment.end_all(_GRACE)
    return watchdog.LOST

  def _again(self, lost: str, restart: int) -> bool:
    """Starts all again, from the last checkpoint; whether that could be."""
    most = self._restarts
    if restart > most:
      say(f'{lost}; stopping the others: no restart of {most} is left')
      return False
    say(
      f'{lost}; restart {restart} of {most}, of all tasks, from the last '
      'checkpoint'
    )
    # Where an old task may still run, none may be started.
    if self._experiment.end_all(_GRACE) and self._experiment.start_all():
      return True
    say('cannot restart, because of the above; stopping the others')
    return False

  def _wait_for_end(self) -> Look:
    """Returns when the cause of the end is known.

    A failure is one. Where a task was lost, another one may be about to fail:
    the others get `exit_codes.SETTLE` seconds to end.
    """
    end = None
    while True:
      found = look(self._experiment)
      if found.failed or not found.running + found.unknown:
        return found
      if not found.running or (found.lost and not found.stopped):
        if end is None:
          why = found.lost or _NOBODY
          say(f'{why}; waiting up to {self._settle:g} s for the others')
          end = time.monotonic() + self._settle
        if time.monotonic() >= end:
          return found
      else:
        end = None
      self._interruptions.pause(_LOOK_EVERY)


def end_all(
  experiment: experiments.Experiment,
  interruptions: interruptions_lib.Interruptions,
  number: int,
) -> int:
  """Ends the tasks with this program; a second request kills them.

  Args:
    experiment: has been started.
    interruptions: are heeded.
    number: of the signal that asked for it.

  Returns:
    The exit code.
  """
  say(f'signal {number}: stopping all tasks')
  for seconds in (int(signal_guard.seconds()) + _AFTER_SAVING, 0):
    try:
      with interruptions.at_once():
        experiment.end_all(seconds)
      break
    except interruptions_lib.Interrupted as error:
      number = error.number
      say(f'signal {number} again: waiting no longer')
  return exit_codes.SIGNALLED + number


def say(line: str) -> None:
  """Prints a line with the time."""
  output.say(f'{time.strftime("%Y-%m-%d %H:%M:%S")} {line}')
