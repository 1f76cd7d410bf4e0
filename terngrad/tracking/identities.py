"""The file with which a resumed run continues the same run in its trackers."""

import json
import os
import pathlib
import threading

from absl import logging

from slim.datasets.records import disk
from terngrad.tracking import trackers

# Holds the `Tracker.identity` of each tracker, by name.
FILE_NAME = 'trackers.json'


class TrackerIdentities:
  """Reads and writes the `trackers.json` of a run's folder."""

  def __init__(self, folder: str | os.PathLike[str]) -> None:
    """Reads the file, if it exists."""
    self._path = path = pathlib.Path(folder, FILE_NAME)
    # Threads of several trackers write.
    self._lock = threading.Lock()
    self._found = _parse(path)

  def read(self, name: str) -> trackers.Identity:
    """Returns what a tracker needs to continue its run; {} for a new one."""
    return self._found.get(name, {})

  def write(self, name: str, identity: trackers.Identity) -> None:
    """Stores what a tracker needs to continue its run."""
    with self._lock:
      self._found = {**self._found, name: identity}
      disk.write_text(self._path, json.dumps(self._found, indent=2) + '\n')


def _parse(path: pathlib.Path) -> dict[str, trackers.Identity]:
  """Reads the file; {} if it does not exist or is damaged."""
  try:
    found = json.loads(path.read_text(encoding='utf-8'))
    return {
      str(name): {str(key): str(value) for key, value in identity.items()}
      for name, identity in found.items()
    }
  except FileNotFoundError:
    return {}
  except (AttributeError, OSError, RecursionError, ValueError) as error:
    logging.warning(
      '%s: expected the ids of runs in trackers, received: %s. New runs begin '
      'there.',
      *(path, error),
    )
    return {}
