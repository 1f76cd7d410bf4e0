"""Signals that ask a run to stop."""

import contextlib
import signal
import threading


class Stop:
  """Remembers the first signal that asked to stop."""

  def __init__(self):
    """No signal has come yet."""
    self.signal = None


@contextlib.contextmanager
def stopping():
  """Turns SIGTERM and SIGINT into a stop after the step; a second one kills."""
  stop = Stop()
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
