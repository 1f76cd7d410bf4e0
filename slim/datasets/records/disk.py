"""Atomic file writes, file locks and digests."""

import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import shutil
import tempfile
import uuid
from collections import abc
from typing import IO
from typing import Any

_READ_BYTES = 1 << 20  # bytes


@contextlib.contextmanager
def replace_file(path: str | os.PathLike[str]) -> abc.Iterator[pathlib.Path]:
  """Replaces a file atomically: readers see the old one or the new one.

  This holds if the process is killed and after a power cut. Several processes
  may replace the same file at once; the last one wins.

  Yields:
    The path to write to: a hidden file in the same folder, which does not
    exist yet.

  Raises:
    OSError: the file cannot be written. The old file stays, as it does if
      the block raises.
  """
  path = pathlib.Path(path)
  hidden = path.with_name(f'.{path.name}.{uuid.uuid4().hex[:8]}.tmp')
  try:
    yield hidden
    put(hidden, path)
  finally:
    hidden.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
  """Writes a UTF-8 text file atomically."""
  with replace_file(path) as hidden:
    hidden.write_text(text, encoding='utf-8')


@contextlib.contextmanager
def create_folder(path: str | os.PathLike[str]) -> abc.Iterator[pathlib.Path]:
  """Creates a file or a folder atomically, with all the files in it.

  Args:
    path: path to create; its parents are created. When the block ends,
      nothing but an empty folder may exist there.

  Yields:
    A temporary path to create it at, which does not exist yet.

  Raises:
    OSError: it cannot be written.
  """
  path = pathlib.Path(path)
  make_folder(path.parent)
  temporary_folder = pathlib.Path(
    tempfile.mkdtemp(prefix='.making-', dir=path.parent)
  )
  try:
    made = temporary_folder / path.name
    yield made
    for inner in made.rglob('*'):
      sync(inner)
    put(made, path)
  finally:
    shutil.rmtree(temporary_folder)


def make_folder(path: pathlib.Path) -> None:
  """Creates a folder and its parents, and syncs them to disk.

  Args:
    path: path of the folder; may exist.

  Raises:
    OSError: the folder cannot be created.
  """
  missing = [folder for folder in (path, *path.parents) if not folder.exists()]
  try:
    path.mkdir(parents=True, exist_ok=True)
  except FileExistsError as error:
    for folder in missing:
      if folder.is_symlink():
        # The system's message would be that the file exists.
        raise FileNotFoundError(
          errno.ENOENT,
          f'{folder} is a link to {os.readlink(folder)}, which does not exist',
        ) from error
    raise
  for made in missing:
    # A folder may be writable but not readable.
    with contextlib.suppress(PermissionError):
      sync(made.parent)


def put(made: pathlib.Path, path: pathlib.Path) -> None:
  """Syncs a finished file and renames it to a path on the same disk.

  Raises:
    OSError: it cannot be written, or the path is a device or a pipe, which must
      not be replaced.
  """
  if path.exists() and not path.is_file() and not path.is_dir():
    raise OSError(errno.EINVAL, 'it is a device, a pipe or a socket', str(path))
  sync(made)
  os.replace(made, path)
  sync(path.parent)


def sync(path: os.PathLike[str]) -> None:
  """Flushes a file or folder to disk, so that it survives a power cut."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as error:
    # Some network file systems cannot sync folders.
    if error.errno != errno.EINVAL:
      raise
  finally:
    os.close(descriptor)


def digest(path: str | os.PathLike[str], algorithm: str = 'sha256') -> str:
  """Returns the hash of a file, in lower-case hexadecimal digits.

  Args:
    path: path of the file.
    algorithm: a name that `hashlib` accepts.

  Raises:
    OSError: the file cannot be read.
  """
  found = hashlib.new(algorithm, usedforsecurity=False)
  with open(path, 'rb') as file:
    while piece := file.read(_READ_BYTES):
      found.update(piece)
  return found.hexdigest()


def is_at(file: int | IO[Any], path: str | os.PathLike[str]) -> bool:
  """Returns whether a path still names an open file.

  A lock on a file that was renamed or deleted excludes nobody.
  """
  descriptor = file if isinstance(file, int) else file.fileno()
  try:
    return os.path.samestat(os.stat(path), os.stat(descriptor))
  except FileNotFoundError:
    return False


def lock(file: int | IO[Any]) -> bool:
  """Locks an open file or folder against other processes, without waiting.

  The operating system releases the lock when the descriptor is closed or the
  process ends.

  Args:
    file: a descriptor, or an object that has one.

  Returns:
    False if another process holds the lock.

  Raises:
    OSError: the file system does not support locks.
  """
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  return True
