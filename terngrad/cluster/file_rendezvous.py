"""Rendezvous in a folder of a shared file system; see `rendezvous`."""

import contextlib
import errno
import itertools
import os
import re
import secrets
import stat
from typing import NamedTuple

from terngrad.cluster import rendezvous
from terngrad.cluster import spec as clusters
from terngrad.cluster import start_failures

# More names than a run's processes create, with their temporary files.
_MAX_NAMES = 4 * clusters.MAX_TASKS
# Errors of file systems without hard links, such as FAT and some FUSE ones.
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP)
_NAME = re.compile(r'task_([0-9]{1,6})_of_([0-9]{1,6})')
_FAILURE = re.compile(r'failed_([0-9]{1,6})_of_([0-9]{1,6})')


class Folder:
  """A folder with one file per process.

  Attributes:
    name: its path.
    remedy: advice for messages: how to use another folder.
  """

  remedy = 'Give this run another --rendezvous_dir.'

  def __init__(self, path: str) -> None:
    """Checks the path; `sync` creates the folder if it is missing.

    Args:
      path: a folder for this run only, on a file system that all processes
        share.

    Raises:
      clusters.ClusterError: the path is empty.
    """
    if not path:
      raise clusters.ClusterError(
        'rendezvous_dir: expected a folder that only the processes of this run '
        'share, received nothing. Give each of them the same folder.'
      )
    self.name = path
    # When this process wrote its address, by the clock of the file system.
    self._written: float | None = None

  def sync(self, index: int, count: int, address: str) -> dict[int, str | None]:
    """Writes this process's address, and reads those of all processes.

    Returns:
      {index: 'host:port'}, with None for a process without file.

    Raises:
      clusters.ClusterError: the folder belongs to another run or is not
        writable.
    """
    try:
      if self._written is None:
        os.makedirs(self.name, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
          os.unlink(self._failure_path(index, count))
        self._written = self._write_once(self.entry_name(index, count), address)
      self._check_run(count)
      entries = {i: _read(self.entry_name(i, count)) for i in range(count)}
      return {i: one.line if one else None for i, one in entries.items()}
    except OSError as error:
      raise _not_writable(error) from error

  def write_failure(self, index: int, count: int, reason: str) -> None:
    """Writes the failure of this process; see `start_failures`."""
    path = self._failure_path(index, count)
    try:
      os.makedirs(self.name, exist_ok=True)
      staged, _ = _stage(path, reason)
      os.replace(staged, path)
    except OSError as error:
      raise _not_writable(error) from error

  def read_failure(
    self, index: int, count: int
  ) -> start_failures.StartFailure | None:
    """Returns the failure of another process; see `start_failures`."""
    try:
      return self._find_failure(index, count)
    except OSError as error:
      raise _not_writable(error) from error

  def _find_failure(
    self, index: int, count: int
  ) -> start_failures.StartFailure | None:
    begin = self._written or 0.0
    for name in self._names():
      match = _FAILURE.fullmatch(name)
      if not match or int(match[1]) == index or int(match[2]) != count:
        continue
      entry = _read(os.path.join(self.name, name), 'text')
      if entry and entry.time > begin - start_failures.SHOWN_SECONDS:
        return start_failures.StartFailure(
          int(match[1]), entry.line, entry.time - begin
        )
    return None

  def _failure_path(self, index: int, count: int) -> str:
    """Returns the path of the failure of a process."""
    return os.path.join(self.name, f'failed_{index}_of_{count}')

  def entry_name(self, index: int, count: int) -> str:
    """Returns the path of a process's file."""
    return os.path.join(self.name, f'task_{index}_of_{count}')

  def _write_once(self, path: str, address: str) -> float:
    """Writes a file atomically, unless it exists; returns the time."""
    staged, now = _stage(path, address)
    # Unlike a rename, a link replaces no existing file.
    with contextlib.suppress(FileExistsError):
      try:
        os.link(staged, path)
      except OSError as error:
        if error.errno in _NO_LINKS:
          raise clusters.ClusterError(
            'rendezvous_dir: expected a file system with hard links, received: '
            f'{error}. Use another folder, or --run_id with a Redis server.'
          ) from error
        raise
      finally:
        os.unlink(staged)
    return now

  def _names(self) -> list[str]:
    """Returns the names in the folder; refuses too many."""
    with os.scandir(self.name) as entries:
      names = [one.name for one in itertools.islice(entries, _MAX_NAMES + 1)]
    if len(names) > _MAX_NAMES:
      raise clusters.ClusterError(
        f'{self.name}: expected a folder of one run, received more than '
        f'{_MAX_NAMES} names in it. {self.remedy}'
      )
    return names

  def _check_run(self, count: int) -> None:
    """Refuses a folder of another run, or one with too many other files."""
    for name in self._names():
      match = _NAME.fullmatch(name)
      if match and int(match[2]) != count:
        raise clusters.ClusterError(
          f'{os.path.join(self.name, name)}: expected files of {count} '
          f'processes, received one of {int(match[2])}: another run used this '
          f'folder. {self.remedy}'
        )


class StoredLine(NamedTuple):
  """The line in a file, and the time of its writing in seconds since 1970."""

  line: str
  time: float


def _stage(path: str, line: str) -> tuple[str, float]:
  """Writes a line to a new file beside a path; returns (its path, the time)."""
  staged = f'{path}.{secrets.token_hex(8)}'
  with open(staged, 'x', encoding='ascii') as file:
    file.write(f'{line}\n')
    file.flush()
    return staged, os.fstat(file.fileno()).st_mtime


def _read(path: str, kind: str = 'host:port') -> StoredLine | None:
  """Reads the line in a file, described by `kind`; None without a file."""
  try:
    # A link could point anywhere, and reading a pipe could block forever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
  except FileNotFoundError:
    return None
  except OSError as error:
    raise _not_a_plain_file(path, error.strerror) from error
  status = os.fstat(descriptor)
  if not stat.S_ISREG(status.st_mode):
    os.close(descriptor)
    raise _not_a_plain_file(path, 'another kind of file')
  with open(descriptor, 'rb') as file:
    content = file.read(rendezvous.MAX_BYTES + 1)
  line = content.decode('ascii', 'replace')
  if not line.endswith('\n') or len(content) > rendezvous.MAX_BYTES:
    raise clusters.ClusterError(
      f'{path}: expected a line of {kind}, received {clusters.quote(line)}. '
      'Check who can write to this folder, or give another --rendezvous_dir.'
    )
  return StoredLine(line[:-1], status.st_mtime)


def _not_writable(error: OSError) -> clusters.ClusterError:
  return clusters.ClusterError(
    f'rendezvous_dir: expected a folder to write to, received: {error}. '
    'Check its path and permissions.'
  )


def _not_a_plain_file(path: str, received: str | None) -> clusters.ClusterError:
  return clusters.ClusterError(
    f'{path}: expected a plain file to read, received: {received}. Check who '
    'can write to this folder, or give another --rendezvous_dir.'
  )
