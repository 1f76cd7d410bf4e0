"""SIGTERM and SIGINT end every program, whatever it waits for.

Python calls signal handlers in the main thread, and not before a call into C
returns: a step that waits for a stopped peer never does. The signal's number
arrives at once in the wakeup socket, where a thread of `obey` reads it. After
the first signal the program may save and end by itself; when the time is over,
or after a second signal, the thread ends it, and all processes below it.

Calls that hold Python's lock stop that thread too. Where TensorFlow makes them,
`cluster.watchdog` has another process look at the same socket.
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
# A program that starts others gives them so many seconds less.
_LESS_FOR_CHILDREN = 3.0


class Interrupted(KeyboardInterrupt):
  """A signal came where nothing is to be saved.

  Attributes:
    number: of the signal.
  """

  def __init__(self, number: int):
    """Remembers the signal."""
    super().__init__(signal.Signals(number).name)
    self.number = number


class Stop:
  """Remembers the first signal that asked to stop.

  Several equal processes stop after the same step: that before which one of
  them had been asked.

  Attributes:
    signal: its number, or None.
    doing: what may take long now, for the last words.
    saved: steps of the last checkpoint, <= 0 for none, None where others know.
  """

  def __init__(self, alone: bool = True):
    """No signal has come yet.

    Args:
      alone: False where other processes have to agree, see `agree`.
    """
    self.signal: int | None = None
    self.doing = ''
    self.saved: int | None = None
    self._alone = alone
    self._agreed = 0

  def agree(self, result: Any, step: int) -> None:
    """Takes in what a step says of the others.

    Args:
      result: its `step.StepResult`.
      step: steps taken.
    """
    self.doing = f'what follows step {step}'
    if not self._alone:
      self._agreed = int(result.stop)

  @property
  def agreed(self) -> int | None:
    """The signal to stop at now, or None."""
    return self.signal if self._alone else self._agreed or None


_guards: list[signal_guard.Guard] = []


def guard() -> signal_guard.Guard | None:
  """The `signal_guard.Guard` of this process, or None outside of `obey`."""
  return _guards[-1] if _guards else None


def taken() -> int | None:
  """The number of the first signal that came in `obey`, or None."""
  watch = guard()
  return watch.taken if watch else None


@contextlib.contextmanager
def obey() -> Iterator[None]:
  """Ends the process in time after a signal; see above.

  Raises:
    Interrupted: a signal came outside of a block of `stopping`.
  """
  if threading.current_thread() is not threading.main_thread() or _guards:
    yield
    return
  watch = signal_guard.Guard()
  _guards.append(watch)
  before = signal.set_wakeup_fd(watch.writer, warn_on_full_buffer=False)
  interrupted: list[int] = []

  def interrupt(number: int, frame: Any) -> None:
    del frame
    # Once: what follows would cut short what the first one ends.
    if not interrupted:
      interrupted.append(number)
      raise Interrupted(number)

  previous = _handle(interrupt)
  try:
    yield
  finally:
    # After a signal the time runs on, until Python itself has ended.
    if watch.taken is None:
      _restore(previous)
      signal.set_wakeup_fd(before)
      _guards.remove(watch)
      watch.close()
    else:
      signal_guard.kill_below(os.getpid())


def _handle(handler: Callable[[int, Any], None]) -> dict[int, Any]:
  """Installs a handler; the ones of before."""
  return {number: signal.signal(number, handler) for number in NUMBERS}


def _restore(handlers: dict[int, Any]) -> None:
  for number, handler in handlers.items():
    # What C has installed Python does not know.
    if handler is not None:
      signal.signal(number, handler)


@contextlib.contextmanager
def stopping(alone: bool = True) -> Iterator[Stop]:
  """Turns SIGTERM and SIGINT into a stop after the step; a second one kills.

  Args:
    alone: see `Stop`.
  """
  stop = Stop(alone)
  if threading.current_thread() is not threading.main_thread():
    yield stop
    return
  watch = guard()

  def handle(number: int, frame: Any) -> None:
    del frame
    stop.signal = stop.signal or number
    # A guard sees the second one too.
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
def importing() -> Iterator[None]:
  """A block that starts threads of TensorFlow, which leave signals alone.

  It takes seconds, on a busy machine many: signals are obeyed meanwhile.
  """
  with signal_guard.passed_on() if guard() else signal_guard.blocked():
    yield


def environment() -> dict[str, str]:
  """What a process that this one starts and waits for has to know.

  It ends before this one does, which can then say how.
  """
  left = signal_guard.seconds() - _LESS_FOR_CHILDREN
  return {signal_guard.VARIABLE: f'{max(signal_guard.LEAST, left):g}'}


@contextlib.contextmanager
def joining() -> Iterator[None]:
  """A block in which TensorFlow may hold Python's lock and take SIGTERM away.

  It has a handler of its own where processes join, which sets a mark that only
  its own callers look at. So signals stay pending, where another process sees
  them: see `cluster.bystander`.
  """
  if guard() is None:
    yield
    return
  signal_guard.inform(blocked=True)
  try:
    with signal_guard.blocked():
      yield
  finally:
    signal_guard.inform(blocked=False)
