"""Signals that ask a run to stop."""

import contextlib
import signal
import threading


class Stop:
  """Remembers the first signal that asked to stop.

  Several equal processes stop after the same step: that before which one of
  them had been asked.
  """

  def __init__(self, alone=True):
    """No signal has come yet.

    Args:
      alone: False where other processes have to agree, see `agree`.
    """
    self.signal = None
    self._alone = alone
    self._told = 0

  def agree(self, result):
    """Takes in what the `step.StepResult` of a step tells of the others."""
    if not self._alone:
      self._told = int(result.stop)

  @property
  def agreed(self):
    """The signal to stop at now, or None."""
    return self.signal if self._alone else self._told or None


@contextlib.contextmanager
def stopping(alone=True):
  """Turns SIGTERM and SIGINT into a stop after the step; a second one kills.

  Args:
    alone: see `Stop`.
  """
  stop = Stop(alone)
  if threading.current_thread() is not threading.main_thread():
    yield stop
    return

  def handle(number, frame):
    del frame
    stop.signal = number
    signal.signal(number, previous[number])

  previous = {
    number: signal.signal(number, handle)
    for number in (signal.SIGTERM, signal.SIGINT)
  }
  try:
    yield stop
  finally:
    for number, handler in previous.items():
      signal.signal(number, handler)
