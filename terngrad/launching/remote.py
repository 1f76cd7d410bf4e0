"""Calls the functions of scripts/dist_tasks.sh on the hosts of tasks.

Hosts need bash for this, but no Python. The shell program and the call are
sent to standard input, so that no login shell interprets the arguments.
"""

import pathlib
import shlex
import subprocess
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import IO
from typing import NamedTuple
from typing import Protocol
from typing import TypeVar

from terngrad.cluster import spec
from terngrad.launching import addresses
from terngrad.launching import refusals

# BatchMode: never prompt. ServerAlive*: give up a silent host after 15 s.
SSH = (
  'ssh',
  '-T',
  *('-o', 'BatchMode=yes', '-o', 'ConnectTimeout=10'),
  *('-o', 'ServerAliveInterval=5', '-o', 'ServerAliveCountMax=3'),
)
# Time limit of a short call in seconds. The keep-alives notice a host that is
# lost, but not one whose disks hang: its sshd answers them.
CALL_SECONDS = 60.0
# Exit code of ssh if it cannot reach the host, here also of a call that took
# too long.
_NOT_REACHED = 255
# Exit code of a shell if it cannot find a program.
NOT_STARTED = 127
_CONTROL = {code: None for code in (*range(10), *range(11, 32), 127)}


class CallResult(NamedTuple):
  """Result of a call on a host.

  Attributes:
    ok: True if the call succeeded.
    lines: its output, for printing.
  """

  ok: bool
  lines: list[str]

  @property
  def text(self) -> str:
    """All lines as one text."""
    return '\n'.join(self.lines)


_Item = TypeVar('_Item')


class PrintLines(Protocol):
  """Prints lines, such as `output.try_say`."""

  def __call__(self, *lines: str) -> object:
    """Prints the lines at once."""


def each(
  function: Callable[[_Item], CallResult],
  items: Iterable[_Item],
  say: PrintLines | None = None,
) -> CallResult:
  """Calls a function for each item, one after the other.

  Args:
    function: takes an item, such as a task.
    items: such as tasks.
    say: prints the lines of each result at once; None prints nothing.

  Returns:
    All lines; `ok` is True if all results are.
  """
  ok, lines = True, []
  for one in items:
    result = function(one)
    ok = ok and result.ok
    lines += result.lines
    if say is not None:
      say(*result.lines)
  return CallResult(ok, lines)


def find_script(scripts: str, name: str) -> pathlib.Path:
  """Returns the path of a script of the project.

  Raises:
    terngrad.errors.ConfigError: the folder `scripts` has no such file.
  """
  path = pathlib.Path(scripts) / name
  if not path.is_file():
    raise refusals.refusal(
      f'no {name}',
      f"the project's folder scripts/, with {name}",
      scripts,
      'give --scripts=FOLDER, the folder scripts/ of a copy of the project',
    )
  return path


class Hosts:
  """Calls functions on this machine and, by ssh, on others.

  Attributes:
    check: raises if a signal asks the launcher to end.
  """

  def __init__(self, scripts: str, check: Callable[[], None]) -> None:
    """Reads dist_tasks.sh.

    Args:
      scripts: folder with dist_tasks.sh.
      check: runs before each call of a task's host; an exception prevents the
        call.

    Raises:
      terngrad.errors.ConfigError: the folder has no dist_tasks.sh.
    """
    self._functions = find_script(scripts, 'dist_tasks.sh').read_bytes()
    self.check = check

  def call_local(self, function: str, *words: str) -> CallResult:
    """Calls a function on this machine, also after a signal."""
    status, text = self._run_function(('bash', '-s'), function, words)
    return CallResult(not status, text.split('\n'))

  def call(
    self,
    address: str,
    label: str,
    function: str,
    *words: str,
    seconds: float = CALL_SECONDS,
  ) -> CallResult:
    """Calls a function on the host of an address.

    Args:
      address: 'host:port' of a task; loopback is this machine.
      label: each line of the result begins with '{label} on {host}: '.
      function: name of a function of dist_tasks.sh.
      *words: arguments of the function.
      seconds: time limit.
    """
    self.check()
    host = addresses.host(address)
    is_local = spec.is_loopback(address)
    command = ('bash', '-s') if is_local else (*SSH, '--', host, 'bash', '-s')
    status, text = self._run_function(command, function, words, seconds)
    if status == _NOT_REACHED and not is_local:
      text = (
        f'expected: ssh -o BatchMode=yes {host} to work\n'
        f'received: {text}\n'
        'remedy: add a key and connect once by hand (docs/distributed.md)'
      )
    lines = [f'{label} on {host}: {line}' for line in text.split('\n')]
    return CallResult(not status, lines)

  def _run_function(
    self,
    command: tuple[str, ...],
    function: str,
    words: tuple[str, ...],
    seconds: float = CALL_SECONDS,
  ) -> tuple[int, str]:
    call = f'\n{shlex.join((function, *words))}\n'
    stdin = self._functions + call.encode(errors='surrogateescape')
    try:
      done = run(command, stdin, seconds=seconds)
    except OSError as error:
      return NOT_STARTED, cannot_start(command[0], error)
    return done.returncode, clean(done.stdout)


def run(
  command: Sequence[str],
  stdin: bytes = b'',
  stdout: int | IO[bytes] = subprocess.PIPE,
  seconds: float = CALL_SECONDS,
) -> subprocess.CompletedProcess[bytes]:
  """Runs a program on this machine and waits for its end.

  Args:
    command: the program and its arguments.
    stdin: its standard input.
    stdout: receives its standard output and standard error.
    seconds: time limit. Then the program is killed, and the exit code is that
      of an ssh that cannot reach its host.
  """
  try:
    return subprocess.run(
      command,
      input=stdin,
      stdout=stdout,
      stderr=subprocess.STDOUT,
      check=False,
      # Ctrl-C goes only to the launcher, which handles it between two calls.
      start_new_session=True,
      timeout=seconds,
    )
  except subprocess.TimeoutExpired:
    late = f'no answer within {seconds:g} s'
    return subprocess.CompletedProcess(command, _NOT_REACHED, late.encode())


def cannot_start(program: str, error: OSError) -> str:
  """Formats the line for a program of this machine that does not start."""
  return f'cannot start {program} here: {error.strerror}'


def clean(output: bytes) -> str:
  """Decodes output and removes control characters, safe for a terminal."""
  return output.decode(errors='replace').translate(_CONTROL).rstrip('\n')
