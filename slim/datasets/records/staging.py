"""A folder for unfinished files, locked by one process at a time.

Readers find no data in `<folder>/.unfinished`.
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
def lock_folder(folder: pathlib.Path) -> abc.Iterator[pathlib.Path]:
  """Creates `<folder>/.unfinished` and locks it against other processes.

  The operating system releases the lock when the process ends. The files stay
  for the next process; the caller removes the folder when its work is done.

  Args:
    folder: output folder of the finished files; created if it does not exist.

  Yields:
    The locked folder.

  Raises:
    slim.errors.DataError: another process holds the lock.
    OSError: the folder cannot be created.
  """
  staging_folder = folder / FOLDER
  disk.make_folder(folder)
  descriptor = None
  while descriptor is None:
    staging_folder.mkdir(exist_ok=True)
    descriptor = _lock(staging_folder / _LOCK, folder)
  try:
    yield staging_folder
  finally:
    os.close(descriptor)


def remove(staging_folder: pathlib.Path) -> None:
  """Removes the staging folder and all its files."""
  shutil.rmtree(staging_folder)


def _lock(path: pathlib.Path, folder: pathlib.Path) -> int | None:
  """Returns the descriptor that holds the lock; None to try again."""
  try:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
  except FileNotFoundError:  # the lock's holder has just removed the folder
    return None
  if not disk.lock(descriptor):
    holder = os.read(descriptor, 20).decode(errors='replace')
    os.close(descriptor)
    raise errors.DataError(
      f'{folder}: expected a folder that no other process converts into; '
      f'received one into which process {holder} is writing. Wait until it '
      'has finished, or choose another folder.'
    )
  # The holder may have removed the folder; a lock on a deleted file is void.
  if disk.is_at(descriptor, path):
    os.truncate(descriptor, 0)
    os.write(descriptor, b'%d' % os.getpid())
    return descriptor
  os.close(descriptor)
  return None
