"""Child processes of a command on this machine, and signal handlers."""

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
  """Runs commands in parallel; a failure of the first one ends all.

  Args:
    commands: the arguments of each command.
    environments: additional environment variables of each command; None for
      none.

  Returns:
    The first command's exit code if it failed, otherwise the decisive exit code
    of all (`exit_codes.decisive`). If the first command was killed or lost
    another process, the others have `command.SETTLE_SECONDS` to end, and a
    failure of one of them decides.
  """
  started = [
    subprocess.Popen(words, env={**os.environ, **signals.environment(), **more})
    for words, more in zip(
      commands, environments or [{}] * len(commands), strict=True
    )
  ]
  try:
    # Without the first command, the others may wait forever.
    code = exit_codes.as_shell(started[0].wait())
    if exit_codes.is_failure(code):
      return code
    end = time.monotonic() + command.SETTLE_SECONDS
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
