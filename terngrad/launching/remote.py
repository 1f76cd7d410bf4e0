"""Calls the functions of scripts/dist_tasks.sh on the hosts of tasks.

Hosts need bash and no Python for that. The program goes through standard input,
so that no login shell reads its words.
"""

import pathlib
import shlex
import subprocess
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import IO
from typing import NamedTuple
from typing import TypeVar

from terngrad.launching import addresses
from terngrad.launching import refusals

# BatchMode: no question that nobody would answer. ServerAlive*: a host that
# falls silent is given up after 15 s.
SSH = (
  'ssh',
  '-T',
  *('-o', 'BatchMode=yes', '-o', 'ConnectTimeout=10'),
  *('-o', 'ServerAliveInterval=5', '-o', 'ServerAliveCountMax=3'),
)
# ssh's exit code where it does not reach the host.
_NOT_REACHED = 255
# A shell's exit code where it does not find a program.
NOT_STARTED = 127
_CONTROL = {code: None for code in (*range(10), *range(11, 32), 127)}


class Said(NamedTuple):
  """What became of something.

  Attributes:
    ok: whether it did what was asked.
    lines: for people.
  """

  ok: bool
  lines: list[str]

  @property
  def text(self) -> str:
    """All lines as one text."""
    return '\n'.join(self.lines)


_Asked = TypeVar('_Asked')


def each(
  ask: Callable[[_Asked], Said],
  whom: Iterable[_Asked],
  say: Callable[..., None] | None = None,
) -> Said:
  """Asks for each, one after the other.

  Args:
    ask: what says how each is.
    whom: of what to ask.
    say: gets the lines of each as they come; None to keep them for the answer.

  Returns:
    All lines; not ok unless all are.
  """
  ok, lines = True, []
  for one in whom:
    said = ask(one)
    ok = ok and said.ok
    lines += said.lines
    if say is not None:
      say(*said.lines)
  return Said(ok, lines)


class Hosts:
  """Calls functions on this machine and, by ssh, on others."""

  def __init__(self, scripts: str, check: Callable[[], None]) -> None:
    """Reads the functions.

    Args:
      scripts: folder with dist_tasks.sh.
      check: called before each call; may raise to make none.

    Raises:
      terngrad.errors.ConfigError: the folder has none.
    """
    path = pathlib.Path(scripts) / 'dist_tasks.sh'
    if not path.is_file():
      raise refusals.refusal(
        'nothing to run on hosts',
        "the project's folder scripts/, with dist_tasks.sh",
        scripts,
        'give --scripts=FOLDER, of a copy of the project',
      )
    self._functions = path.read_bytes()
    self._check = check

  def here(self, function: str, *words: str) -> Said:
    """Calls a function on this machine."""
    status, text = self._call(('bash', '-s'), function, words)
    return Said(not status, text.split('\n'))

  def tell(self, address: str, label: str, function: str, *words: str) -> Said:
    """Calls a function on the host of an address.

    Args:
      address: of a task; loopback is this machine.
      label: begins each line of the answer, with the host.
      function: one of dist_tasks.sh.
      *words: its arguments.

    Returns:
      What it said.
    """
    host = addresses.host(address)
    here = addresses.is_loopback(address)
    command = ('bash', '-s') if here else (*SSH, '--', host, 'bash', '-s')
    status, text = self._call(command, function, words)
    if status == _NOT_REACHED:
      text = (
        f'expected: ssh -o BatchMode=yes {host} to work\n'
        f'received: {text}\n'
        'remedy: add a key and connect once by hand (docs/distributed.md)'
      )
    lines = [f'{label} on {host}: {line}' for line in text.split('\n')]
    return Said(not status, lines)

  def _call(
    self, command: tuple[str, ...], function: str, words: tuple[str, ...]
  ) -> tuple[int, str]:
    self._check()
    call = f'\n{shlex.join((function, *words))}\n'
    try:
      done = run(
        command, self._functions + call.encode(errors='surrogateescape')
      )
    except OSError as error:
      return NOT_STARTED, cannot_start(command[0], error)
    return done.returncode, plain(done.stdout)


def run(
  command: Sequence[str],
  given: bytes = b'',
  stdout: int | IO[bytes] = subprocess.PIPE,
) -> subprocess.CompletedProcess[bytes]:
  """Runs a program of this machine to its end.

  Args:
    command: the program and its arguments.
    given: its standard input.
    stdout: gets what it writes, to standard error too.
  """
  return subprocess.run(
    command,
    input=given,
    stdout=stdout,
    stderr=subprocess.STDOUT,
    check=False,
    # A ctrl-c is for the launcher, which looks at it between two calls.
    start_new_session=True,
  )


def cannot_start(program: str, error: OSError) -> str:
  """The line about a program of this machine that does not start."""
  return f'cannot start {program} here: {error.strerror}'


def plain(output: bytes) -> str:
  """Output without control characters: others' words are for a terminal."""
  return output.decode(errors='replace').translate(_CONTROL).rstrip('\n')
