"""Starts all processes of a run, on one machine or several.

Each process could also be started by hand: its command line, or TF_CONFIG,
holds the hosts of all processes and its index among them.
"""

import contextlib
import dataclasses
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from collections.abc import Sequence

from terngrad import signals
from terngrad.cli import children
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli import launch_flags
from terngrad.cli import launch_hosts
from terngrad.cli import launch_program
from terngrad.cli import ports
from terngrad.config import options
from terngrad.launching import exit_codes

USAGE = """\
{program}: starts all processes of a run, on one machine or several.

  {program} -n 2 -- train mnist --data_dir=D --train_dir=T \\
      --batch_size=64 --codec=ternary
  {program} -n 2 --num_ps=1 -- train mnist ...
  {program} -n 2 -- python my_program.py

Without parameter servers the workers exchange codes with each other; with
--num_ps=1 or more they push codes to the servers and pull sums. After `--`
comes a command `train` with its flags; hosts and task numbers are added to it.
Every line of the log begins with the name of its process. If a process fails,
the others are stopped, and this program exits with the exit code of that
process. Signals are passed on; processes that have not ended 27 seconds later
are killed.
"""

# Command line of `terngrad`, without its arguments.
TRAINER = (sys.executable, '-m', 'terngrad.cli.main')
# Seconds that a process has to write a checkpoint and end after SIGTERM.
_GRACE = 120


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags(launch_flags.Hosts):
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


def launch(values: Flags) -> int:
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
    launch_hosts.check_network(
      values, launch_hosts.worker_addresses(values.hosts)
    )
  command.at_least(1, values, 'num_workers')
  command.at_least(0, values, 'num_ps')
  # SimpleQueue is reentrant, so signal handlers may use it.
  events: _Events = queue.SimpleQueue()
  with contextlib.ExitStack() as stack:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    stack.enter_context(
      children.signal_handlers(
        numbers, lambda number: events.put((None, number))
      )
    )
    processes = [
      stack.enter_context(_run_task(task, events)) for task in tasks(values)
    ]
    return _wait(processes, events)


def tasks(values: Flags) -> list[launch_program.Task]:
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
  values: Flags, workers: Sequence[str], servers: Sequence[str]
) -> list[launch_program.Task]:
  """Returns the processes that train with the command."""
  given = ['--allow_insecure_network'] if values.allow_insecure_network else []
  found = launch_hosts.assign(
    values.command, ','.join(workers), ','.join(servers)
  )
  return [
    launch_program.Task(f'{job} {index}', (*TRAINER, *words, *given))
    # Servers first; within each job, task 0 is the last.
    for job, index, words in sorted(found, key=lambda one: (one[0], -one[1]))
  ]


@dataclasses.dataclass(frozen=True)
class _Process:
  """A running task.

  Attributes:
    label: prefix of its log lines.
  """

  label: str
  _process: subprocess.Popen[str]
  _has_children: bool

  def signal(self, number: int) -> None:
    """Sends a signal, and resumes the process if it is suspended."""
    for each in (number, signal.SIGCONT):
      if not self._has_children:
        self._process.send_signal(each)
      # None: not reaped, so its group cannot be another one's.
      elif self._process.returncode is None:
        os.killpg(self._process.pid, each)


# A task that ended and its exit code, or None and a received signal.
_Events = queue.SimpleQueue[tuple[_Process | None, int]]


@contextlib.contextmanager
def _run_task(task: launch_program.Task, events: _Events) -> Iterator[_Process]:
  """Runs a task during a block, and prints its output with its label.

  When the task ends, it is put into `events` with its exit code.
  """
  process = subprocess.Popen(
    task.words,
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    errors='replace',
    # Ctrl-C reaches only the launcher, which forwards it once.
    start_new_session=True,
    env={**os.environ, **signals.environment(), **task.variables},
  )
  running = _Process(task.label, process, task.has_children)

  def watch() -> None:
    for line in process.stdout or ():
      command.say(f'[{task.label}] {line.rstrip()}')
    events.put((running, exit_codes.as_shell(process.wait())))

  thread = threading.Thread(target=watch)
  thread.start()
  with process:
    try:
      yield running
    finally:
      running.signal(signal.SIGTERM)
      thread.join(_GRACE)
      if thread.is_alive():
        running.signal(signal.SIGKILL)
      thread.join()


def _wait(running: list[_Process], events: _Events) -> int:
  """Waits for all tasks, or until the cause of a failure is known."""
  ended: dict[int, _Process] = {}
  end: float | None = None
  stopped = command.DONE
  while running:
    left = None if end is None else max(0.0, end - time.monotonic())
    try:
      process, number = events.get(timeout=left)
    except queue.Empty:
      break
    if process is None:
      # Each task limits its time from here on; see `signal_guard.seconds`.
      stopped, end = exit_codes.SIGNALLED + number, None
      for each in running:
        each.signal(number)
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
        f'to {command.SETTLE} s for the others, to see what failed'
      )
      end = time.monotonic() + command.SETTLE
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
  Flags,
  launch,
  rest='command',
  needs_tensorflow=False,
)
