"""Ends a process whose step does not end, and says who is silent.

A call into TensorFlow that waits for another task cannot be cancelled, so only
a thread beside it can notice, and only the end of the process can help.
"""

import threading
import time

from terngrad.exchange import tasks


class Watchdog:
  """Watches that things go on; use it as a context."""

  def __init__(self, others, timeout, end, clock=time.monotonic):
    """Prepares the thread.

    Args:
      others: list of `tasks.Task` that may be the cause.
      timeout: seconds that may pass between two signs of life.
      end: called from the thread with a message, at most once; not expected to
        return.
      clock: seconds.
    """
    self._others = others
    self._timeout = timeout
    self._end = end
    self._clock = clock
    self._due = None
    self._stop = threading.Event()
    self._thread = threading.Thread(target=self._watch, daemon=True)

  def __enter__(self):
    """Starts to watch."""
    self.expect()
    self._thread.start()
    return self

  def __exit__(self, *error):
    """Ends the thread."""
    del error
    self._stop.set()
    self._thread.join()

  def expect(self, times=1):
    """A sign of life; the next is due after `times` time-outs."""
    self._due = self._clock() + times * self._timeout

  def _watch(self):
    while not self._stop.wait(min(1.0, self._timeout / 4)):
      due = self._due
      if self._clock() < due:
        continue
      silent = [str(t) for t in self._others if not tasks.answers(t)]
      # Asking takes seconds, in which the step may have ended.
      if self._due == due and not self._stop.is_set():
        self._end(_message(self._timeout, silent))
        return


def _message(timeout, silent):
  if silent:
    return (
      f'Step: expected an end within --step_timeout={timeout} seconds, '
      f'received no answer from {", ".join(silent)}. Continue or kill that '
      'process, start it and this one again; the last checkpoint is good.'
    )
  return (
    f'Step: expected an end within --step_timeout={timeout} seconds, received '
    'none, though all tasks answer. Look for a worker that waits for its data, '
    'or give more time; the last checkpoint is good.'
  )
