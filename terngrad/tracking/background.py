"""Logs to a tracker in a thread, so that training never waits for a server."""

import importlib
import os
import queue
import threading
import time
import types
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from absl import logging

from terngrad.tracking import identities
from terngrad.tracking import trackers

# Seconds to wait at the end of a run for values that are not sent yet. Together
# with a last checkpoint they must fit into the time that schedulers leave a
# process after SIGTERM, often 30 seconds.
_CLOSING_SECONDS = 12


def start(
  log_to: Sequence[str],
  folder: str | os.PathLike[str],
  options: Mapping[str, object],
) -> 'list[BackgroundTracker]':
  """Starts the trackers of a run, without waiting for them.

  Args:
    log_to: names of `trackers.NAMES` whose packages are installed.
    folder: path of the run's folder. The trackers continue the runs that
      `trackers.json` in it names.
    options: options of the run by name.

  Returns:
    A tracker for each name except TensorBoard's.
  """
  names = [name for name in log_to if name in trackers.MODULES]
  if not names:
    return []
  stored = identities.TrackerIdentities(folder)
  started = []
  for name in names:
    module = importlib.import_module(trackers.MODULES[name])
    run = trackers.TrackedRun(
      os.path.abspath(folder), options, stored.read(name), _find_active(module)
    )
    started.append(BackgroundTracker(name, module.start, run, stored.write))
  return started


def close(started: 'Sequence[BackgroundTracker]', failed: bool) -> None:
  """Ends the runs in all trackers; waits for them together for some seconds."""
  for tracker in started:
    tracker.end(failed)
  deadline = time.monotonic() + _CLOSING_SECONDS
  for tracker in started:
    tracker.join(deadline)


def _find_active(module: types.ModuleType) -> str:
  """Asks in the program's thread, because MLflow's runs belong to a thread."""
  try:
    return str(module.find_active())
  except Exception as error:
    logging.warning('%s: %s', module.__name__, error)
    return ''


class BackgroundTracker:
  """Passes numbers to a tracker in a thread.

  If the tracker raises anything, one warning is logged and it gets nothing
  more; training goes on.
  """

  def __init__(
    self,
    name: str,
    start: Callable[[trackers.TrackedRun], trackers.Tracker],
    run: trackers.TrackedRun,
    store: Callable[[str, trackers.Identity], None],
  ) -> None:
    """Starts the thread, which calls `start`.

    Args:
      name: name of the tracker.
      start: begins or continues the run.
      run: the run.
      store: called with the name and the identity of the run, once it began.
    """
    self._name = name
    self._start = start
    self._run = run
    self._store = store
    # Steps with their values; then whether the run failed.
    self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
    # A daemon: a server that does not answer must not keep the process alive.
    self._thread = threading.Thread(
      target=self._work, name=f'log to {name}', daemon=True
    )
    self._thread.start()

  def log(self, step: int, values: Mapping[str, float]) -> None:
    """Logs numbers of one step; does not wait."""
    if self._thread.is_alive():
      self._queue.put((step, dict(values)))

  def end(self, failed: bool) -> None:
    """Ends the run in the tracker, after all that was logged; does not wait."""
    self._queue.put(failed)

  def join(self, deadline: float) -> None:
    """Waits for the end of the run, until a time of `time.monotonic`."""
    self._thread.join(max(0.0, deadline - time.monotonic()))
    if self._thread.is_alive():
      self._warn(f'no answer for {_CLOSING_SECONDS} seconds')

  def _work(self) -> None:
    try:
      tracker = self._start(self._run)
      self._store(self._name, tracker.identity)
      while not isinstance(item := self._queue.get(), bool):
        tracker.log(*item)
      tracker.close(item)
    # Whatever a tracker raises, SystemExit included, training goes on.
    except BaseException as error:
      self._warn(f'{type(error).__name__}: {error}')

  def _warn(self, received: str) -> None:
    logging.warning(
      '%s: expected to log the metrics there, received: %s. Training goes on; '
      'metrics.jsonl in %s holds all metrics.',
      *(self._name, ' '.join(received.split())[:500], self._run.folder),
    )
