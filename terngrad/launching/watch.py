"""Watches the tasks of an experiment until they end, and restarts them.

A single program, on the machine that started the tasks, decides for all tasks.
If each host restarted its tasks, a new task could connect to an old task of the
previous attempt. The program needs only ssh, PID files and exit codes.
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

# Environment variable: seconds that the other tasks have to end without a
# signal after one was lost.
SETTLE_VARIABLE = 'TERNGRAD_SETTLE_SECONDS'
# Environment variable: seconds that a restart waits for hosts that cannot be
# reached. A server takes minutes to restart.
HOST_VARIABLE = 'TERNGRAD_HOST_SECONDS'
_HOST_SECONDS = 600.0
_RETRY_SECONDS = 15.0
# Seconds between two calls of `query`.
_POLL_SECONDS = 2.0
# Seconds that a task has to end before it is killed. Killing it loses nothing.
_GRACE = 10
# Seconds to wait longer than `signal_guard.seconds`, a task's time to save and
# end, before it is killed.
_EXTRA_SECONDS = 2
_UNREACHABLE = 'a host cannot be reached'
_STOPPED = exit_codes.SIGNALLED + 15
_STATE = re.compile(
  r'[a-z]+_[0-9]+ on [^ ]+: (running|stopped|ended)'
  r'( \((process|exit code) ([0-9]+)\))?'
)
_TUNNEL_ENDED = re.compile(r'tunnel to .*: ended, log .*')


class TaskStates(NamedTuple):
  """The states of all tasks and tunnels.

  Attributes:
    running: number of running tasks.
    unknown: number of tasks that did not answer.
    failed: status line of a task that failed, or ''.
    stopped: status line of a task that was asked to end, or ''.
    lost: status line of a task that was killed or lost another task, or of a
      tunnel that ended, or ''.
    code: exit code of the failed task.
  """

  running: int = 0
  unknown: int = 0
  failed: str = ''
  stopped: str = ''
  lost: str = ''
  code: int = 0

  def add(self, line: str) -> 'TaskStates':
    """Adds the status line of a task; ignores other output of a shell."""
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
      # The task was killed or its host restarted, so it left no exit code.
      return known._replace(lost=line)
    return known._replace(failed=line, code=code)


def settle_seconds() -> float:
  """Reads the seconds that other tasks have to end after a loss.

  `SETTLE_VARIABLE` sets them; the default is `exit_codes.SETTLE_SECONDS`.
  """
  return _seconds(SETTLE_VARIABLE, exit_codes.SETTLE_SECONDS)


def _seconds(variable: str, default: float) -> float:
  text = os.environ.get(variable, '')
  try:
    return max(0.0, float(text or default))
  except ValueError:
    say(
      f'{variable}: expected a number of seconds, received {text[:200]!r}; '
      f'{default:g} are used. Correct it, or leave it out.'
    )
    return default


def query(experiment: experiments.Experiment) -> TaskStates:
  """Queries the states of all tasks and tunnels."""
  found = TaskStates(unknown=len(experiment.tasks))
  for line in remote.each(experiment.status, experiment.tasks).lines:
    found = found.add(line)
  ended = [
    x for x in experiment.tunnels.status().lines if _TUNNEL_ENDED.fullmatch(x)
  ]
  # A tunnel does not reopen, and tasks may wait long for each other.
  if ended and (found.lost or found.running):
    found = found._replace(lost=ended[-1])
  return found


class Watch:
  """Waits for the end of all tasks; restarts all of them if one is lost."""

  def __init__(
    self,
    experiment: experiments.Experiment,
    interruptions: interruptions_lib.Interruptions,
    restarts: int,
  ) -> None:
    """Takes an experiment with started tasks and the maximum of restarts.

    `run` must be called in a block of `interruptions.delay_signals`.
    """
    self._experiment = experiment
    self._interruptions = interruptions
    self._restarts = restarts
    self._settle = settle_seconds()

  def run(self) -> int:
    """Waits for the end of the run; returns its exit code."""
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
      if not self._restart(found.lost or _UNREACHABLE, restart):
        break
    self._experiment.end_all(_GRACE)
    return watchdog.LOST

  def _restart(self, lost: str, restart: int) -> bool:
    """Restarts all tasks from the last checkpoint; False if it could not."""
    most = self._restarts
    if restart > most:
      say(f'{lost}; stopping the others: no restarts are left, of {most}')
      return False
    say(
      f'{lost}; restart {restart} of {most}: all tasks continue from the last '
      'checkpoint'
    )
    # Start no task while an old one may still run.
    if self._end_all() and self._experiment.start_all(resumes=True):
      return True
    say('cannot restart, because of the errors above; stopping the others')
    return False

  def _end_all(self) -> bool:
    """Ends all tasks, also those of hosts that restart at the moment."""
    seconds = _seconds(HOST_VARIABLE, _HOST_SECONDS)
    end = time.monotonic() + seconds
    while not self._experiment.end_all(_GRACE):
      if time.monotonic() >= end:
        return False
      say(f'{_UNREACHABLE}; waiting up to {seconds:g} s for it')
      self._interruptions.pause(_RETRY_SECONDS)
    return True

  def _wait_for_end(self) -> TaskStates:
    """Waits until the cause of the end is known.

    A failure ends the wait. After a lost task or an unreachable host, another
    task may be about to fail: the others then have `settle_seconds()` to end.
    """
    end = None
    while True:
      found = query(self._experiment)
      if found.failed or not found.running + found.unknown:
        return found
      if not found.running or (found.lost and not found.stopped):
        if end is None:
          why = found.lost or _UNREACHABLE
          say(f'{why}; waiting up to {self._settle:g} s for the others')
          end = time.monotonic() + self._settle
        if time.monotonic() >= end:
          return found
      else:
        end = None
      self._interruptions.pause(_POLL_SECONDS)


def end_all(
  experiment: experiments.Experiment,
  interruptions: interruptions_lib.Interruptions,
  number: int,
) -> int:
  """Ends all tasks after signal `number`; a second request kills them.

  It must be called in a block of `interruptions.delay_signals`.

  Returns:
    The exit code: 128 + the number of the last signal.
  """
  say(f'signal {number}: stopping all tasks')
  for seconds in (int(signal_guard.seconds()) + _EXTRA_SECONDS, 0):
    try:
      with interruptions.interrupt_at_once():
        experiment.end_all(seconds)
      break
    except interruptions_lib.LaunchInterrupted as error:
      number = error.number
      say(f'signal {number} again: killing all tasks')
  return exit_codes.SIGNALLED + number


def say(line: str) -> None:
  """Prints a line with the local time in front."""
  output.try_say(f'{time.strftime("%Y-%m-%d %H:%M:%S")} {line}')
