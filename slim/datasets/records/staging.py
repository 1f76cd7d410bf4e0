"""A place for files that are not whole yet, held by one process at a time.

Nothing in `<folder>/.unfinished` matches what readers look for.
"""

import contextlib
import os
import pathlib
import shutil
from collections import abc

from slim import errors
from slim.datasets.records import disk

FOLDER = '.unfinished'

_LOCK = 'lock'


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> abc.Iterator[pathlib.Path]:
  """Makes `<folder>/.unfinished` and keeps other processes out of it.

  The lock goes with the process, however that ends. What stands in the place
  stays there for the next one; the caller removes the place when all is done.

  Args:
    folder: where the finished files will go; made if it does not exist.

  Yields:
    The place.

  Raises:
    slim.errors.DataError: another process holds it.
    OSError: it cannot be made.
  """
  place = folder / FOLDER
  disk.make_folder(folder)
  descriptor = None
  while descriptor is None:
    place.mkdir(exist_ok=True)
    descriptor = _lock(place / _LOCK, folder)
  try:
    yield place
  finally:
    os.close(descriptor)


def remove(place: pathlib.Path) -> None:
  """Removes the place with all that is in it."""
  shutil.rmtree(place)


def _lock(path: pathlib.Path, folder: pathlib.Path) -> int | None:
  """Returns the descriptor that holds the lock; None to try again."""
  try:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
  except FileNotFoundError:  # its holder has just removed the place
    return None
  if not disk.lock(descriptor):
    holder = os.read(descriptor, 20).decode(errors='replace')
    os.close(descriptor)
    raise errors.DataError(
      f'{folder}: expected a folder that no other process converts into; '
      f'received one that process {holder} is at work in. Wait for it, or '
      'choose another folder.'
    )
  # The holder removes the file with the place: a lock on that one is void.
  with contextlib.suppress(FileNotFoundError):
    if os.path.samestat(os.fstat(descriptor), os.stat(path)):
      os.truncate(descriptor, 0)
      os.write(descriptor, b'%d' % os.getpid())
      return descriptor
  os.close(descriptor)
  return None
