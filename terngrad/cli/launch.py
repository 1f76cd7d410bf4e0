"""Starts all processes of a run, on one machine or several.

Each process could also be started by hand: its command line, or TF_CONFIG,
holds the hosts of all processes and its index among them.
"""

import dataclasses
import queue
import signal
import time
from collections.abc import Sequence

from terngrad.cli import children
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli import launch_flags
from terngrad.cli import launch_hosts
from terngrad.cli import launch_program
from terngrad.cli import ports
from terngrad.config import options
from terngrad.launching import exit_codes
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
machine are stopped, and this program exits with its exit code. Signals are
passed on; processes that have not ended within 27 seconds are killed. For
parameter servers on separate GPUs, or several machines, see below.
"""

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
    (signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
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
  ended: dict[int, processes.Process] = {}
  end: float | None = None
  stopped = command.DONE
  while running:
    left = None if end is None else max(0.0, end - time.monotonic())
    try:
      process, number = events.get(timeout=left)
    except queue.Empty:
      break
    if process is None:
      stopped, end = exit_codes.SIGNALLED + number, None
      for each in running:
        each.forward(number)
        # Each trainer limits its time itself; see `signal_guard.seconds`.
        if each.is_program:
          end = max(end or 0.0, each.deadline or 0.0)
      continue
    running.remove(process)
    ended[number] = process
    if stopped or not number:
      continue
    if exit_codes.is_failure(number):
      break
    if running and end is None:
      command.say(
        f'[launch] {process.label} ended with exit code {number}; waiting up '
        f'to {command.SETTLE_SECONDS} s for the others, to see what failed'
      )
      end = time.monotonic() + command.SETTLE_SECONDS
  code = exit_codes.decisive(ended)
  if stopped or not code:
    return stopped
  return command.report_error(
    'error',
    f'{ended[code].label} ended with exit code {code}: expected 0, so the '
    'other processes are stopped. Its last lines in the log say why.',
    code,
  )


COMMAND = command.Command(
  USAGE + launch_program.USAGE + launch_flags.USAGE,
  LaunchFlags,
  launch,
  rest='command',
  needs_tensorflow=False,
)
