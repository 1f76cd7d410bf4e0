"""How child processes of a measurement end: by which signal, with which words.

A process that a signal killed cannot report an error itself. Its parent names
the signal, repeats the last lines, and kills what the process left.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from collections.abc import Sequence

from terngrad import signal_guard
from terngrad.cluster import signal_watcher

# Option of prctl(2): orphans below this process become its children.
_PR_SET_CHILD_SUBREAPER = 36
_CRASHED = (
  'A library crashed; the lines say where. Run it with --verbosity=1 and fewer '
  'cases to find the one that crashes.'
)
_ADVICE = {
  signal.SIGKILL: 'The system kills processes if memory is short: use a '
  'smaller net or batch, or fewer processes, and read the output of dmesg.',
  signal.SIGILL: 'A library was compiled for another processor: install it '
  'again on this machine.',
  signal.SIGXCPU: 'The limit of CPU time is over: raise it with ulimit -t.',
} | dict.fromkeys(
  (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE), _CRASHED
)


def environment() -> dict[str, str]:
  """Returns variables with which Python prints where a library crashed."""
  return {'PYTHONFAULTHANDLER': os.environ.get('PYTHONFAULTHANDLER', '1')}


def killed_by(code: int) -> int | None:
  """Returns the signal that killed a process, of its exit code; None if none.

  Args:
    code: negative as in `subprocess`, or over 128 as in a shell.
  """
  number = -code if code < 0 else code - signal_guard.EXIT_CODE
  return number if number in {*signal.Signals} else None


def describe(
  name: str, code: int, lines: Sequence[str], advice: str = ''
) -> str:
  """Describes the end of a failed process: expected, received, remedy.

  Args:
    name: name of the process.
    code: its exit code, as for `killed_by`.
    lines: the last lines that it printed.
    advice: remedy for a crash, or any failure without signal; '' for a general
      one.
  """
  end = name_end(code)
  received = end if killed_by(code) is None else f'the end by {end}'
  shown = '\n'.join(f'  {line}' for line in lines)
  after = f' after these lines:\n{shown}\n' if shown else ' without a line. '
  return (
    f'{name}: expected exit code 0, received {received}{after}'
    f'{remedy(code, advice)}'
  )


def name_end(code: int) -> str:
  """Names how a process ended: 'exit code 1', 'signal 11 (SIGSEGV)'."""
  number = killed_by(code)
  if number is None:
    return f'exit code {code}'
  return f'signal {number} ({signal.Signals(number).name})'


def remedy(code: int, advice: str = '') -> str:
  """Returns what to do after the end of a failed process; see `describe`."""
  number = killed_by(code)
  if number is None:
    return advice or 'Correct the error that these lines name.'
  found = _ADVICE.get(signal.Signals(number), 'Find out who sent it.')
  return (
    f'A library crashed. {advice}' if found == _CRASHED and advice else found
  )


@contextlib.contextmanager
def kill_rest() -> Iterator[None]:
  """Kills all processes that the block leaves, also in other sessions.

  Orphans become children of this process. So a second signal, after which
  `signal_guard` kills all processes below this one, reaches them too.
  """
  before = signal_guard.descendants(os.getpid())
  library = signal_watcher.library('prctl')
  _adopt_orphans(library, True)
  try:
    yield
  finally:
    for number in signal_guard.kill_below(os.getpid(), spared=before):
      # Those that this process waited for, and those of others, are no more.
      with contextlib.suppress(ChildProcessError):
        os.waitpid(number, 0)
    _adopt_orphans(library, False)


def _adopt_orphans(library: ctypes.CDLL | None, adopts: bool) -> None:
  """Sets whether orphans become children of this process; needs Linux."""
  if library is not None and sys.platform == 'linux':
    library.prctl(_PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)
