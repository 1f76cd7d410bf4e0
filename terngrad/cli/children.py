"""Child processes of a command on this machine, and signal handlers."""

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from terngrad import signals
from terngrad.children import endings
from terngrad.children import stderr_copy
from terngrad.cli import command
from terngrad.cli import ports
from terngrad.launching import exit_codes


class ChildCommand(NamedTuple):
  """A command to run as a child process.

  Attributes:
    words: its command line.
    name: its name in messages.
    variables: additional environment variables.
  """

  words: Sequence[str]
  name: str = 'a process'
  variables: Mapping[str, str] = {}


def run(commands: Sequence[ChildCommand], advice: str = '') -> int:
  """Runs commands in parallel; a failure of the first one ends all.

  A command that a signal kills is reported with the signal and its last lines.

  Args:
    commands: the commands.
    advice: what to try if a library crashes one of them; '' for a general
      remedy.

  Returns:
    The first command's exit code if it failed, otherwise the decisive exit code
    of all (`exit_codes.decisive`). If a command was killed, or the first one
    lost another process, the others have `command.SETTLE_SECONDS` to end.
  """
  with contextlib.ExitStack() as stack:
    stack.enter_context(endings.kill_rest())
    # Without the first command, the others may wait forever.
    first, *_ = started = [
      stack.enter_context(_Child(each, advice)) for each in commands
    ]
    waiting, codes, end = {one.descriptor: one for one in started}, [], math.inf
    while waiting:
      left = None if end == math.inf else max(0.0, end - time.monotonic())
      ready = select.select([*waiting], [], [], left)[0]
      if not ready:
        break
      for one in map(waiting.pop, ready):
        code = one.collect()
        if one is first and exit_codes.is_failure(code):
          return code
        codes.append(code)
        if one.was_killed or (one is first and code):
          end = min(end, time.monotonic() + command.SETTLE_SECONDS)
    return exit_codes.decisive(codes)


def run_workers(words: Sequence[str], count: int) -> int:
  """Runs a command in `count` workers here, each with a TF_CONFIG.

  Returns:
    As `run`.
  """
  hosts = [f'127.0.0.1:{port}' for port in ports.free(count)]
  cluster = {'worker': hosts}
  tasks = [{'type': 'worker', 'index': index} for index in range(count)]
  configs = [json.dumps({'cluster': cluster, 'task': task}) for task in tasks]
  return run(
    [
      ChildCommand(words, f'worker {index}', {'TF_CONFIG': config})
      for index, config in enumerate(configs)
    ]
  )


class _Child:
  """A running command, as a context that kills it at its end.

  Attributes:
    descriptor: is ready to read when the command has ended.
    was_killed: whether a signal ended it.
  """

  def __init__(self, child: ChildCommand, advice: str) -> None:
    self._name, self._advice, self.was_killed = child.name, advice, False
    self._copy = stderr_copy.StderrCopy()
    self._process = subprocess.Popen(
      child.words,
      stderr=self._copy.writer,
      env={
        **os.environ,
        **signals.environment(),
        **endings.environment(),
        **child.variables,
      },
    )
    self.descriptor = os.pidfd_open(self._process.pid)

  def __enter__(self) -> '_Child':
    return self

  def __exit__(self, *error: object) -> None:
    self._process.kill()
    self._process.wait()
    self._copy.close()
    os.close(self.descriptor)

  def collect(self) -> int:
    """Returns the exit code of the ended command; reports a killing signal."""
    code = self._process.wait()
    lines = self._copy.close()
    self.was_killed = code < 0
    if self.was_killed:
      message = endings.describe(self._name, code, lines, self._advice)
      command.report_error('error', message, code)
    return exit_codes.as_shell(code)


@contextlib.contextmanager
def signal_handlers(
  numbers: Iterable[int], act: Callable[[int], None]
) -> Iterator[None]:
  """Replaces the handlers of signals during a block.

  Args:
    numbers: the signals' numbers.
    act: called with the number of a received signal.
  """
  with contextlib.ExitStack() as stack:
    for number in numbers:
      before = signal.signal(number, lambda number, frame: act(number))
      stack.callback(signal.signal, number, before)
    yield
