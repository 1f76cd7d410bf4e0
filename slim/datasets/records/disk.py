"""Files that are whole or not there, and held by one process at a time."""

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

_READ_TOGETHER = 1 << 20  # bytes


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> abc.Iterator[pathlib.Path]:
  """Makes a file that is at any time the old one or the new one.

  That holds for a process that is killed and for a power cut too. Several
  processes may do it at once: the last one stays.

  Args:
    path: of the file.

  Yields:
    The name to write to: a hidden file beside it, which does not exist yet.

  Raises:
    OSError: it cannot be written; the old file stays, as it does where the
      block raises.
  """
  path = pathlib.Path(path)
  hidden = path.with_name(f'.{path.name}.{uuid.uuid4().hex[:8]}.tmp')
  try:
    yield hidden
    put(hidden, path)
  finally:
    hidden.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
  """Writes a file of text, by `replacing`."""
  with replacing(path) as hidden:
    hidden.write_text(text, encoding='utf-8')


@contextlib.contextmanager
def making_folder(path: str | os.PathLike[str]) -> abc.Iterator[pathlib.Path]:
  """Makes a file or a folder that is there with all its files or not at all.

  Args:
    path: of it; its parents are made. What is there when the block ends must be
      an empty folder or nothing.

  Yields:
    The name to make it under, which does not exist yet.

  Raises:
    OSError: it cannot be written.
  """
  path = pathlib.Path(path)
  make_folder(path.parent)
  place = pathlib.Path(tempfile.mkdtemp(prefix='.making-', dir=path.parent))
  try:
    made = place / path.name
    yield made
    for inner in made.rglob('*'):
      sync(inner)
    put(made, path)
  finally:
    shutil.rmtree(place)


def make_folder(path: pathlib.Path) -> None:
  """Makes a folder and its parents, all on the disk.

  Args:
    path: of it; may be there.

  Raises:
    OSError: it cannot be made.
  """
  missing = [place for place in (path, *path.parents) if not place.exists()]
  try:
    path.mkdir(parents=True, exist_ok=True)
  except FileExistsError as error:
    for place in missing:
      if place.is_symlink():
        # What the system says is that the file exists.
        raise FileNotFoundError(
          errno.ENOENT,
          f'{place} is a link to {os.readlink(place)}, which is not there',
        ) from error
    raise
  for made in missing:
    # A folder that may be written need not be one that may be opened.
    with contextlib.suppress(PermissionError):
      sync(made.parent)


def put(made: pathlib.Path, path: pathlib.Path) -> None:
  """Gives what is finished its name, on the same disk and on it."""
  sync(made)
  os.replace(made, path)
  sync(path.parent)


def sync(path: os.PathLike[str]) -> None:
  """Brings a file or folder to the disk, so that a power cut keeps it."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as error:
    # Some network file systems bring no folders to the disk.
    if error.errno != errno.EINVAL:
      raise
  finally:
    os.close(descriptor)


def digest(path: str | os.PathLike[str], algorithm: str = 'sha256') -> str:
  """The hash of a file, in lower-case hexadecimal digits.

  Args:
    path: of the file.
    algorithm: a name that `hashlib` knows.

  Raises:
    OSError: it cannot be read.
  """
  found = hashlib.new(algorithm, usedforsecurity=False)
  with open(path, 'rb') as file:
    while piece := file.read(_READ_TOGETHER):
      found.update(piece)
  return found.hexdigest()


def lock(file: int | IO[Any]) -> bool:
  """Keeps other processes out of an open file or folder.

  The lock goes with the descriptor, and so with the process, however that ends.

  Args:
    file: a descriptor, or an object that has one.

  Returns:
    False where another process has it.

  Raises:
    OSError: the file system has no locks.
  """
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  return True
