"""Scans files once and caches their record counts in their folder."""

import contextlib
import json
import os
import pathlib
from collections import abc
from typing import Any

from slim.datasets.records import disk
from slim.datasets.records import records

# A hidden file, which readers do not take for data.
FILE_NAME = '.record_counts.json'

_FORMAT = 1


def count(
  paths: abc.Sequence[str | os.PathLike[str]],
) -> tuple[records.RecordFile, ...]:
  """Counts the records of files of one folder, or reads cached counts.

  The folder caches the counts with the size and the times of each file. A file
  is counted again when one of them changes. If the folder is not writable,
  files are counted on every call.

  Args:
    paths: at least one file, all in the same folder.

  Returns:
    A RecordFile for each, in the same order.

  Raises:
    slim.errors.DataError: a file is damaged, as `records.scan` reports it.
  """
  folder = pathlib.Path(paths[0]).parent
  known = _read_cache(folder / FILE_NAME)
  names = {os.fspath(path): os.path.basename(path) for path in paths}
  stamps = {path: _stamp(path) for path in names}
  numbers = {
    path: known[name]['num_examples']
    for path, name in names.items()
    if _is_entry(known.get(name), stamps[path])
  }
  scanned = records.scan_all([path for path in names if path not in numbers])
  numbers |= {file.path: file.count for file in scanned}
  if scanned:
    entries = {
      name: {**stamps[path], 'num_examples': numbers[path]}
      for path, name in names.items()
      if stamps[path]
    }
    _write_cache(folder / FILE_NAME, known | entries)
  return tuple(records.RecordFile(path, numbers[path]) for path in names)


def _stamp(path: str) -> dict[str, int]:
  """Returns size and times of a file; {} if it is missing (scan reports it)."""
  try:
    status = os.stat(path)
  except OSError:
    return {}
  return {
    'size': status.st_size,
    'mtime_ns': status.st_mtime_ns,
    # Set when the file is copied to this machine, so that a cache that comes
    # with a data set does not replace the scan.
    'ctime_ns': status.st_ctime_ns,
  }


def _read_cache(path: pathlib.Path) -> dict[str, Any]:
  """Returns the cached entries; {} if the file is missing or not a cache."""
  try:
    content = json.loads(path.read_bytes())
  except (OSError, ValueError, RecursionError):
    return {}
  if not isinstance(content, dict) or content.get('format') != _FORMAT:
    return {}
  files = content.get('files')
  return files if isinstance(files, dict) else {}


def _is_entry(entry: Any, stamp: dict[str, int]) -> bool:
  """Returns whether a cached entry, of any type, is valid for the stamp."""
  return (
    isinstance(entry, dict)
    and all(type(entry.get(key)) is int for key in (*stamp, 'num_examples'))
    and bool(stamp)
    and stamp.items() <= entry.items()
    and entry['num_examples'] >= 1
  )


def _write_cache(path: pathlib.Path, entries: dict[str, Any]) -> None:
  content = json.dumps({'format': _FORMAT, 'files': entries})
  # The cache is optional, so a read-only folder is not an error.
  with contextlib.suppress(OSError):
    disk.write_text(path, content)
