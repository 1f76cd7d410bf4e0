"""Starts all processes of a run, on one machine or several.

Each process could also be started by hand: its command line, or TF_CONFIG,
holds the hosts of all processes and its index among them.
"""

import dataclasses
import math
import queue
import signal
import time
from collections.abc import Sequence

from terngrad.children import endings
from terngrad.cli import children
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli import launch_flags
from terngrad.cli import launch_hosts
from terngrad.cli import launch_program
from terngrad.cli import ports
from terngrad.config import options
from terngrad.launching import exit_codes
from terngrad.launching import interruptions
from terngrad.launching import processes

USAGE = """\
{program}: starts all processes of a training run, or of any program.

On this machine:

  {program} -n 2 -- train mnist --data_dir=D --train_dir=T \\
      --batch_size=64 --codec=ternary
  {program} -n 2 --num_ps=1 -- train mnist ...
  {program} -n 2 -- python my_program.py

Without parameter servers the workers exchange codes with each other; with
--num_ps=1 or more they push codes to the servers and pull sums. After `--`
comes a command `train` with its flags, to which hosts and task numbers are
added, or a program with its arguments. Every line of the log begins with the
name of its process. If a process on this machine fails, the others on this
machine are stopped, and this program exits with its exit code. If a signal
kills one, its exit code counts, because others fail without it. Signals are
passed on; processes that have not ended within 27 seconds are killed. For
parameter servers on separate GPUs, or several machines, see below.
"""

# Seconds after a failure in which the end of a killed process may be reported,
# whose loss made the other one fail.
CAUSE_SECONDS = 0.5
# Python handles a signal that comes just before a wait only after it.
_WAKE_SECONDS = 0.5
# Command line of `terngrad`, without its arguments.
TRAINER = tuple(command.line_of())


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchFlags(launch_flags.HostFlags):
  """The flags, and the training command after `--`."""

  num_workers: int = options.option(
    2, 'Number of worker processes on this machine.', 'cluster', short='n'
  )
  num_ps: int = options.option(
    0,
    'Number of parameter servers; 0: workers exchange with each other.',
    'cluster',
  )
  command: tuple[str, ...] = ()


def launch(values: LaunchFlags) -> int:
  """Runs all processes; returns the exit code of the run.

  Raises:
    terngrad.cli.flags.UsageError: the flags contradict each other, or the
      command does not train on several processes.
    terngrad.errors.ConfigError: a value is invalid; nothing was started.
  """
  if launch_flags.uses_hosts(values):
    if values.hosts and not options.is_default(values, 'num_workers'):
      raise flags.UsageError(
        '--num_workers: expected none beside --hosts, each of which is a '
        f'worker, received {values.num_workers}. Leave it out.'
      )
    if values.rank == launch_flags.EVERY_RANK:
      return launch_hosts.launch(values, values.command, values.num_ps)
    launch_hosts.check_rank_hosts(values)
  command.at_least(1, values, 'num_workers')
  command.at_least(0, values, 'num_ps')
  found = tasks(values)
  # Trainers print a warning themselves.
  if any(task.is_program for task in found):
    if values.rank != launch_flags.EVERY_RANK:
      launch_program.check_port(found[0])
    command.say(f'[launch] {launch_program.network_warning(found[-1])}')
  return _run(found)


def _run(found: Sequence[processes.ProcessCommand]) -> int:
  """Starts all tasks and waits for the end of the run."""
  events: processes.Events = queue.SimpleQueue()
  started: list[processes.Process] = []
  with children.signal_handlers(
    interruptions.requests_to_end(),
    lambda number: events.put((None, number)),
  ):
    try:
      for task in found:
        started.append(processes.Process(task, events))
      return _wait([*started], events)
    finally:
      processes.end_all(started)


def tasks(values: LaunchFlags) -> list[processes.ProcessCommand]:
  """Returns the processes to start on this machine; the chief is the last.

  Raises:
    terngrad.cli.flags.UsageError: the command neither trains on several
      processes nor starts a program.
  """
  addresses = launch_hosts.worker_addresses(values.hosts) or tuple(
    f'localhost:{port}'
    for port in ports.free(values.num_workers + values.num_ps)
  )
  count = len(addresses) - values.num_ps
  if launch_program.is_program(values.command):
    found = launch_program.tasks(values.command, addresses, values.num_ps)
  else:
    found = _trainers(values, addresses[:count], addresses[count:])
  if values.rank == launch_flags.EVERY_RANK:
    return found
  return [task for task in found if task.label == f'worker {values.rank}']


def _trainers(
  values: LaunchFlags, workers: Sequence[str], servers: Sequence[str]
) -> list[processes.ProcessCommand]:
  """Returns the processes that train with the command."""
  given = ['--allow_insecure_network'] if values.allow_insecure_network else []
  found = launch_hosts.assign(
    values.command, ','.join(workers), ','.join(servers)
  )
  return [
    processes.ProcessCommand(f'{job} {index}', (*TRAINER, *words, *given))
    # Servers first; within each job, task 0 is the last.
    for job, index, words in sorted(found, key=lambda one: (one[0], -one[1]))
  ]


def _wait(running: list[processes.Process], events: processes.Events) -> int:
  """Waits for all tasks, or until the cause of a failure is known."""
  ended: list[tuple[processes.Process, int]] = []
  end, stopped = math.inf, command.DONE
  while running:
    left = min(_WAKE_SECONDS, max(0.0, end - time.monotonic()))
    try:
      process, number = events.get(timeout=left)
    except queue.Empty:
      if time.monotonic() < end:
        continue
      break
    if process is None:
      stopped, end = exit_codes.SIGNALLED + number, _forward(number, running)
      continue
    running.remove(process)
    ended.append((process, number))
    if not stopped and number:
      end = min(end, time.monotonic() + _settle(ended, bool(running)))
  return _report(ended, stopped)


def _forward(number: int, running: Sequence[processes.Process]) -> float:
  """Passes a signal on; returns when the launcher stops to wait."""
  for each in running:
    each.forward(number)
  # Each trainer limits its time itself; see `signal_guard.seconds`.
  deadlines = [each.deadline or 0.0 for each in running if each.is_program]
  return max(deadlines, default=math.inf)


def _settle(
  ended: Sequence[tuple[processes.Process, int]], others_run: bool
) -> float:
  """Returns the seconds to wait for others after the last process ended."""
  process, number = ended[-1]
  before = [code for _, code in ended[:-1] if code]
  if exit_codes.is_failure(number):
    return 0.0 if any(map(exit_codes.is_killed, before)) else CAUSE_SECONDS
  if others_run and not before:
    command.say(
      f'[launch] {_end(process, number)}; waiting up to '
      f'{command.SETTLE_SECONDS} s for the others, to see what failed'
    )
  return command.SETTLE_SECONDS


def _report(
  ended: Sequence[tuple[processes.Process, int]], stopped: int
) -> int:
  """Names the process that failed first; returns the run's exit code."""
  code = exit_codes.decisive(number for _, number in ended)
  if stopped or not code:
    return stopped
  process = next(process for process, number in ended if number == code)
  remedy = 'Its last lines in the log say why.'
  if code < 0 and endings.killed_by(code):
    remedy = endings.remedy(code)
  return command.report_error(
    'error',
    f'{_end(process, code)}: expected 0, so the other processes are stopped. '
    f'{remedy}',
    exit_codes.as_shell(code),
  )


def _end(process: processes.Process, code: int) -> str:
  """Describes the end of a process."""
  signalled = ''
  if code < 0:
    # Real-time signals have no name.
    number = endings.killed_by(code)
    name = f' ({signal.Signals(number).name})' if number else ''
    signalled = f', killed by signal {-code}{name}'
  return (
    f'{process.label} ended with exit code {exit_codes.as_shell(code)}'
    f'{signalled}'
  )


COMMAND = command.Command(
  USAGE + launch_program.USAGE + launch_flags.USAGE,
  LaunchFlags,
  launch,
  rest='command',
  needs_tensorflow=False,
)
