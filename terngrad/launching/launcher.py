"""Starts, checks and stops the tasks of a configuration on their hosts."""

import contextlib
import dataclasses
import os
import re
import shlex
import time
from collections.abc import Callable

from terngrad.launching import configuration
from terngrad.launching import experiment as experiments
from terngrad.launching import interruptions as interruptions_lib
from terngrad.launching import output
from terngrad.launching import refusals
from terngrad.launching import remote
from terngrad.launching import tasks as tasks_lib
from terngrad.launching import tunnels
from terngrad.launching import watch

START, CHECK, STATUS, DRY_RUN, STOP = ACTIONS = (
  'start',
  'check',
  'status',
  'dry_run',
  'stop',
)
# Exit code if a task did not start, or if --status finds one not running.
_FAILED = 1
_GRACE = 10
_VERSIONS = re.compile(r'.*?: (terngrad .*)')


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchRequest:
  """An action on the tasks of a run.

  Attributes:
    tasks: makes the tasks of an experiment from its name.
    scripts: folder with dist_tasks.sh. The project is at the same path on all
      hosts.
    action: one of `ACTIONS`.
    experiment: name of the experiment. '' starts a new one, or takes the one
      that was started last for STATUS and STOP.
    restarts: maximum number of restarts; None returns once all tasks run.
    seconds: seconds after which STOP kills the tasks that have not ended.
    tunnel: True if ssh carries the connections between tasks.
  """

  config: configuration.Configuration
  tasks: Callable[[str], list[tasks_lib.LaunchTask]]
  scripts: str
  action: str = START
  experiment: str = ''
  restarts: int | None = None
  seconds: int = 60
  tunnel: bool = False

  def make_experiment(
    self, name: str, interruptions: interruptions_lib.Interruptions
  ) -> experiments.Experiment:
    """Makes the experiment of this name."""
    hosts = remote.Hosts(self.scripts, interruptions.check)
    return experiments.Experiment(
      self.config, name, self.tasks(name), hosts, self.tunnel
    )


def run(request: LaunchRequest) -> int:
  """Carries out a request.

  Returns:
    The exit code. 0: success. 1: a task did not start, does not run or could
    not be reached. With restarts or tunnels it is the exit code of the run, see
    `watch.Watch`.

  Raises:
    terngrad.errors.ConfigError: the request is wrong; nothing was started.
  """
  if request.restarts is not None and request.action != START:
    raise refusals.refusal(
      'nothing to restart',
      f'--restart without --{request.action}',
      f'--{request.action}',
      'remove one of the two flags',
    )
  interruptions = interruptions_lib.Interruptions()
  if request.action in (STATUS, STOP):
    name = request.experiment or experiments.latest(request.config)
    experiment = request.make_experiment(name, interruptions)
    if request.action == STOP:
      return 0 if experiment.end_all(request.seconds) else _FAILED
    return _status(experiment)
  if request.tunnel:
    tunnels.check(request.config)
  else:
    configuration.check_network(request.config)
  name = request.experiment or time.strftime('%Y-%m-%d_%H-%M-%S')
  experiment = request.make_experiment(name, interruptions)
  if request.action == DRY_RUN:
    return _print_commands(experiment)
  _require_success(
    remote.each(experiment.can_start, experiment.tasks),
    'nothing was started',
    'hosts that can start their tasks',
    'fix these errors, and try with --check',
  )
  if request.action == CHECK:
    return _check(experiment, request)
  experiment.record()
  waits = request.restarts is not None or request.tunnel
  return _start_and_watch(
    experiment, interruptions, (request.restarts or 0) if waits else None
  )


def _start_and_watch(
  experiment: experiments.Experiment,
  interruptions: interruptions_lib.Interruptions,
  restarts: int | None,
) -> int:
  """Starts all tasks and waits for the end; returns the run's exit code.

  With None for `restarts` it does not wait. A signal stops all tasks.
  """
  with interruptions.delay_signals():
    try:
      code = _start(experiment)
      interruptions.check()
      if code or restarts is None:
        return code
      return watch.Watch(experiment, interruptions, restarts).run()
    except interruptions_lib.LaunchInterrupted as error:
      return watch.end_all(experiment, interruptions, error.number)


def _start(experiment: experiments.Experiment) -> int:
  """Starts all tasks, stops them if one does not start; the exit code."""
  if not experiment.start_all():
    with contextlib.suppress(OSError):
      output.warn(['launch: a task did not start; stopping the others'])
    experiment.end_all(_GRACE)
    return _FAILED
  words = ['terngrad', 'launch', f'--config={experiment.recorded}']
  # Without a name --status would take the experiment that was started last.
  words += [f'--experiment={experiment.name}', '--status']
  output.try_say(
    f'experiment {experiment.name}; its state: {shlex.join(words)}'
  )
  return 0


def _status(experiment: experiments.Experiment) -> int:
  """Prints the states of tasks and tunnels; returns 1 unless all run."""
  tasks = remote.each(experiment.status, experiment.tasks, output.say)
  opened = experiment.tunnels.status()
  output.say(*opened.lines)
  return 0 if tasks.ok and opened.ok else _FAILED


def _print_commands(experiment: experiments.Experiment) -> int:
  """Prints each host and command without connecting to a host."""
  if experiment.tunnel:
    output.say(*map(experiment.tunnels.line, experiment.tunnels.remote_hosts))
  output.say(*(task.line for task in experiment.tasks))
  return 0


def _check(experiment: experiments.Experiment, request: LaunchRequest) -> int:
  """Prints the versions of each task; raises if hosts differ."""
  python = os.path.join(os.path.dirname(request.scripts), '.venv/bin/python')
  result = _require_success(
    remote.each(lambda t: experiment.versions(t, python), experiment.tasks),
    'tasks cannot run',
    'terngrad and the GPUs of WORKER_DEVICES on every host',
    'run scripts/setup.sh there, or correct WORKER_DEVICES',
  )
  output.say(*result.lines)
  _check_versions(result.lines)
  if request.tunnel:
    result = _require_success(
      remote.each(experiment.tunnels.try_open, experiment.tunnels.remote_hosts),
      'tasks cannot connect to each other',
      'a tunnel to every host',
      'fix these errors',
    )
    output.say(*result.lines)
  output.say('all tasks can start')
  return 0


def _check_versions(lines: list[str]) -> None:
  """Raises if VERSIONS in the lines 'NAME on HOST: VERSIONS; GPUS' differ."""
  first = ''
  # Skip other output of the shells.
  for found in filter(None, map(_VERSIONS.fullmatch, lines)):
    versions = found[1].rpartition(';')[0]
    first = first or versions
    if versions != first:
      raise refusals.refusal(
        'hosts have different versions',
        f'{first} on every host',
        found[0].rpartition(';')[0],
        'install the same versions on all hosts',
      )


def _require_success(
  result: remote.CallResult, what: str, expected: str, remedy: str
) -> remote.CallResult:
  """Returns the answers; prints them and raises if one is an error."""
  if not result.ok:
    output.warn(result.lines)
    raise refusals.refusal(what, expected, 'the errors above', remedy)
  return result
