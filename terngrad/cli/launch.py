"""Starts all processes of a training run on this machine.

Each process could also be started by hand: its command line holds the hosts of
all processes and its index among them.
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
from terngrad.cli import ports
from terngrad.config import options
from terngrad.launching import exit_codes

USAGE = """\
{program}: starts all processes of a training run on this machine.

  {program} --num_workers=2 -- train mnist --data_dir=D --train_dir=T \\
      --batch_size=64 --codec=ternary
  {program} --num_workers=2 --num_ps=1 -- train mnist ...

Without parameter servers the workers exchange codes with each other; with
--num_ps=1 or more they push codes to the servers and pull sums. After `--`
comes a command `train` with its flags; hosts and task numbers are added to it.
Every line of the log begins with the name of its process. If a process fails,
the others are stopped, and this program exits with its exit code. Signals are
passed on; processes that have not ended 27 seconds later are killed. For
parameter servers on separate GPUs, or several machines, see below.
"""

# Seconds that a process has to write a checkpoint and end after SIGTERM.
_GRACE = 120


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags(launch_flags.Hosts):
  """The flags, and the training command after `--`."""

  num_workers: int = options.option(
    2, 'Number of worker processes on this machine.', 'cluster'
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
    return launch_hosts.launch(values, values.command, values.num_ps)
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
      stack.enter_context(_run_task(label, arguments, events))
      for label, arguments in tasks(values)
    ]
    return _wait(processes, events)


def tasks(values: Flags) -> list[tuple[str, list[str]]]:
  """Returns the processes to start on this machine.

  Returns:
    List of (label, arguments of `terngrad`); the chief is the last.

  Raises:
    terngrad.cli.flags.UsageError: the command does not train on several
      processes.
  """
  free = ports.free(values.num_workers + values.num_ps)
  hosts = [f'localhost:{port}' for port in free]
  workers, servers = hosts[: values.num_workers], hosts[values.num_workers :]
  assigned = launch_hosts.assign(
    values.command, ','.join(workers), ','.join(servers)
  )
  # Servers first; within each job, task 0 is the last.
  ordered = sorted(assigned, key=lambda task: (task[0], -task[1]))
  return [(f'{job} {index}', words) for job, index, words in ordered]


@dataclasses.dataclass(frozen=True)
class _Process:
  """A running task.

  Attributes:
    label: prefix of its log lines.
  """

  label: str
  _process: subprocess.Popen[str]

  def signal(self, number: int) -> None:
    """Sends a signal, and resumes the process if it is suspended."""
    self._process.send_signal(number)
    self._process.send_signal(signal.SIGCONT)


# A task that ended and its exit code, or None and a received signal.
_Events = queue.SimpleQueue[tuple[_Process | None, int]]


@contextlib.contextmanager
def _run_task(
  label: str, arguments: Sequence[str], events: _Events
) -> Iterator[_Process]:
  """Runs a task during a block, and prints its output with its label.

  When the task ends, it is put into `events` with its exit code.
  """
  process = subprocess.Popen(
    [sys.executable, '-m', 'terngrad.cli.main', *arguments],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    errors='replace',
    # Ctrl-C reaches only the launcher, which forwards it once.
    start_new_session=True,
    env=os.environ | signals.environment(),
  )
  task = _Process(label, process)

  def watch() -> None:
    for line in process.stdout or ():
      command.say(f'[{label}] {line.rstrip()}')
    events.put((task, exit_codes.as_shell(process.wait())))

  thread = threading.Thread(target=watch)
  thread.start()
  with process:
    try:
      yield task
    finally:
      task.signal(signal.SIGTERM)
      thread.join(_GRACE)
      process.kill()
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
  USAGE + launch_flags.USAGE,
  Flags,
  launch,
  rest='command',
  needs_tensorflow=False,
)
