"""The entries of XLA's cache, checked before TensorFlow loads them.

TensorFlow fails a step whose entry is damaged. It writes an entry to a
temporary file and renames it, so a process that is killed leaves no damaged
entry, but a power cut may. `SEALS` holds the checksum of each entry that was
seen complete before the machine stopped; after that, others are removed.
"""

import fcntl
import json
import os
import pathlib
import time
import zlib
from collections.abc import Iterable
from typing import IO

from terngrad import user_cache

SEALS = 'seals.json'
_LOCK, _SUFFIX = 'lock', '.pb'
# The tags of `XlaSerializedCacheEntry`: key, HLO module, executable.
_TAGS = {0x0A, 0x12, 0x1A}
_CLOCK_SECONDS = 60.0


def lock(folder: pathlib.Path) -> tuple[IO[bytes], bool]:
  """Locks the folder until the returned file is closed or the process ends.

  Returns:
    (file, whether no other process uses the folder: then `clean` may run).
  """
  file = (folder / _LOCK).open('ab')
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    share(file)
    return file, False
  return file, True


def share(file: IO[bytes]) -> None:
  """Lets other processes use the folder too; waits for one that cleans it."""
  fcntl.flock(file, fcntl.LOCK_SH)


def clean(folder: pathlib.Path, most_bytes: int) -> None:
  """Removes damaged entries and, beyond a limit, those unused for longest.

  Call it while no other process uses the folder.

  Args:
    folder: of the entries.
    most_bytes: limit of all entries. If they have more, a quarter of it is
      made free.
  """
  seals, kept = _read_seals(folder), {}
  used: dict[pathlib.Path, tuple[float, int]] = {}
  for path in folder.iterdir():
    if path.name in (SEALS, _LOCK):
      continue
    status = path.stat()
    seal = _check(path, seals.get(path.name), status.st_mtime)
    if seal is None:
      path.unlink()
      continue
    kept[path.name] = seal
    used[path] = max(status.st_atime, status.st_mtime), status.st_size
  total = sum(size for _, size in used.values())
  limit = most_bytes if total <= most_bytes else most_bytes * 3 // 4
  for path in sorted(used, key=lambda one: used[one]):
    if total <= limit:
      break
    path.unlink()
    total -= used[path][1]
    del kept[path.name]
  if kept != seals:
    _write_seals(folder, kept, kept.keys() - seals.keys())


def _check(path: pathlib.Path, seal: int | None, seconds: float) -> int | None:
  """Returns the checksum of an entry; None if it may be damaged."""
  if path.suffix != _SUFFIX:  # a temporary file of a killed process
    return None
  # The time of the last use stays that of TensorFlow.
  with open(path, 'rb', opener=_open_unnoticed) as file:
    content = file.read()
  found = zlib.crc32(content)
  if seal is not None:
    return found if found == seal else None
  return None if _is_old(seconds) or not is_complete(content) else found


def _open_unnoticed(path: str, flags: int) -> int:
  return os.open(path, flags | getattr(os, 'O_NOATIME', 0))


def _is_old(seconds: float) -> bool:
  """Whether a file was written before this machine was started."""
  running = time.clock_gettime(time.CLOCK_BOOTTIME)
  return seconds < time.time() - running - _CLOCK_SECONDS


def is_complete(content: bytes) -> bool:
  """Returns whether an entry has all of its fields, which fill the file."""
  found, at = set(), 0
  while at < len(content):
    found.add(content[at])
    size = shift = 0
    for byte in content[at + 1 : at + 11]:
      size |= (byte & 0x7F) << shift
      shift += 7
      if byte < 0x80:
        break
    at += 1 + shift // 7 + size
  return at == len(content) and found == _TAGS


def _read_seals(folder: pathlib.Path) -> dict[str, int]:
  try:
    stored = json.loads((folder / SEALS).read_text(encoding='utf-8'))
    return {name: int(seal) for name, seal in stored.items()}
  except (OSError, ValueError, TypeError, AttributeError, RecursionError):
    return {}


def _write_seals(
  folder: pathlib.Path, seals: dict[str, int], new: Iterable[str]
) -> None:
  """Replaces the file, after the new entries have reached the disk."""
  for name in new:
    with open(folder / name, 'rb', opener=_open_unnoticed) as file:
      os.fsync(file.fileno())
  user_cache.replace(folder / SEALS, json.dumps(seals).encode())
