"""Processes that a command starts on this machine, and signals to it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from terngrad import signals
from terngrad.cli import command
from terngrad.launching import exit_codes


def run(
  commands: Sequence[Sequence[str]],
  environments: Iterable[Mapping[str, str]] | None = None,
) -> int:
  """Starts commands side by side; the first one's end is the end of all.

  Args:
    commands: the words of each.
    environments: what each has beside this process's own environment; None for
      nothing.

  Returns:
    Exit code: the first command's where it failed, then that of the others that
    decides (`exit_codes.decisive`). Where the first one was lost, the others
    have `command.SETTLE` seconds to end, and one that failed decides.
  """
  started = [
    subprocess.Popen(words, env={**os.environ, **signals.environment(), **more})
    for words, more in zip(
      commands, environments or [{}] * len(commands), strict=True
    )
  ]
  try:
    # The others may wait for ever for the first.
    code = exit_codes.as_shell(started[0].wait())
    if exit_codes.is_failure(code):
      return code
    end = time.monotonic() + command.SETTLE
    for one in started:
      with contextlib.suppress(subprocess.TimeoutExpired):
        one.wait(max(0.0, end - time.monotonic()) if code else None)
    codes = [one.poll() for one in started]
    return exit_codes.decisive(
      exit_codes.as_shell(each) for each in codes if each is not None
    )
  finally:
    for one in started:
      one.kill()
      one.wait()


@contextlib.contextmanager
def handling(
  numbers: Iterable[int], act: Callable[[int], None]
) -> Iterator[None]:
  """A block in which signals call a function and do nothing else.

  Args:
    numbers: of the signals.
    act: takes the number of a signal that came.
  """
  with contextlib.ExitStack() as stack:
    for number in numbers:
      before = signal.signal(number, lambda number, frame: act(number))
      stack.callback(signal.signal, number, before)
    yield
