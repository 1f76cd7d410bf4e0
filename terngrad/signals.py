"""Ends every program after SIGTERM or SIGINT, whatever it waits for.

Python calls signal handlers in the main thread, and only after a call into C
returns. A step that waits for a stopped peer never returns. But the signal's
number reaches the wakeup socket at once, where a thread of `obey` reads it.
After the first signal the program can save and exit. When the time limit is
over, or after a second signal, the thread ends the program and all processes
below it.

Calls that hold Python's lock stop this thread too. Where TensorFlow makes such
calls, `cluster.watchdog` has another process read the same socket.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from terngrad import signal_guard

NUMBERS = signal_guard.NUMBERS
# Seconds by which the time limit of child processes is shorter.
_LESS_FOR_CHILDREN = float(signal_guard.BEFORE_KILL_SECONDS)


class Interrupted(KeyboardInterrupt):
  """A signal arrived where nothing has to be saved.

  Attributes:
    number: number of the signal.
  """

  def __init__(self, number: int):
    """Creates the exception for a signal's number."""
    super().__init__(signal.Signals(number).name)
    self.number = number


class Stop:
  """The first signal that asked to stop, agreed on by all processes.

  With several equal processes, all stop after the same step: the first that
  starts after one of them received a signal.

  Attributes:
    signal: number of the signal, or None.
    doing: an operation that may take long, for the last log line.
    saved: steps of the last checkpoint, <= 0 if there is none, None if other
      processes write checkpoints.
  """

  def __init__(self, alone: bool = True):
    """Creates a state without signal.

    Args:
      alone: False if other processes have to agree, see `agree`.
    """
    self.signal: int | None = None
    self.doing = ''
    self.saved: int | None = None
    self._alone = alone
    self._agreed = 0

  def agree(self, result: Any, step: int) -> None:
    """Reads from a step's result whether any process received a signal.

    Args:
      result: the step's `step.StepResult`.
      step: steps taken.
    """
    self.doing = f'the work after step {step}'
    if not self._alone:
      self._agreed = int(result.stop)

  @property
  def agreed(self) -> int | None:
    """The signal to stop at now, or None."""
    return self.signal if self._alone else self._agreed or None


_guards: list[signal_guard.SignalGuard] = []


def guard() -> signal_guard.SignalGuard | None:
  """Returns this process's guard of signals; None outside of `obey`."""
  return _guards[-1] if _guards else None


def taken() -> int | None:
  """Returns the number of the first signal that `obey` received, or None."""
  watch = guard()
  return watch.taken if watch else None


@contextlib.contextmanager
def obey() -> Iterator[None]:
  """Ends the process within the time limit after a signal in the block.

  Raises:
    Interrupted: a signal arrived outside of a block of `stop_at_signal`.
  """
  if threading.current_thread() is not threading.main_thread() or _guards:
    yield
    return
  watch = signal_guard.SignalGuard()
  _guards.append(watch)
  before = signal.set_wakeup_fd(watch.writer, warn_on_full_buffer=False)
  interrupted: list[int] = []

  def interrupt(number: int, frame: Any) -> None:
    del frame
    # Raised once: a second one would interrupt the cleanup after the first.
    if not interrupted:
      interrupted.append(number)
      raise Interrupted(number)

  previous = _handle(interrupt)
  try:
    yield
  finally:
    # After a signal the time limit holds until Python itself has ended.
    if watch.taken is None:
      _restore(previous)
      signal.set_wakeup_fd(before)
      _guards.remove(watch)
      watch.close()
    else:
      signal_guard.kill_below(os.getpid())


def _handle(handler: Callable[[int, Any], None]) -> dict[int, Any]:
  """Installs a handler for all signals; returns the previous ones."""
  return {number: signal.signal(number, handler) for number in NUMBERS}


def _restore(handlers: dict[int, Any]) -> None:
  for number, handler in handlers.items():
    # None: the handler was installed from C, and Python cannot restore it.
    if handler is not None:
      signal.signal(number, handler)


@contextlib.contextmanager
def stop_at_signal(alone: bool = True) -> Iterator[Stop]:
  """Stops training after the current step at SIGTERM or SIGINT.

  A second signal ends the process.

  Args:
    alone: False if other processes have to agree on the step.
  """
  stop = Stop(alone)
  if threading.current_thread() is not threading.main_thread():
    yield stop
    return
  watch = guard()

  def handle(number: int, frame: Any) -> None:
    del frame
    stop.signal = stop.signal or number
    # A guard handles the second signal itself.
    if not watch:
      signal.signal(number, previous[number])

  previous = _handle(handle)
  if watch:
    watch.stop = stop
  try:
    yield stop
  finally:
    if watch:
      watch.stop = None
    _restore(previous)


@contextlib.contextmanager
def block_while_importing() -> Iterator[None]:
  """Keeps signals from threads that TensorFlow starts in the block.

  The import takes seconds, on a busy machine many. Signals still end the
  process meanwhile if `obey` is active.
  """
  with signal_guard.forward() if guard() else signal_guard.block_signals():
    yield


def environment() -> dict[str, str]:
  """Returns environment variables for child processes that are waited for.

  They shorten the child's time limit, so that it ends before this process,
  which can then report its end.
  """
  left = signal_guard.seconds() - _LESS_FOR_CHILDREN
  return {signal_guard.VARIABLE: f'{max(signal_guard.LEAST, left):g}'}


@contextlib.contextmanager
def block_while_joining() -> Iterator[None]:
  """Blocks signals while processes join.

  There TensorFlow may hold Python's lock, and replaces the handler of SIGTERM
  by one that only sets a flag for its callers. Another process sees the pending
  signals, see `cluster.signal_watcher`.
  """
  if guard() is None:
    yield
    return
  signal_guard.inform(blocked=True)
  try:
    with signal_guard.block_signals():
      yield
  finally:
    signal_guard.inform(blocked=False)
