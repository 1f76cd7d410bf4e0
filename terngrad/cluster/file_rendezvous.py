"""Rendezvous in a folder of a shared file system; see `rendezvous`."""

import itertools
import os
import re
import secrets
import stat

from terngrad.cluster import rendezvous
from terngrad.cluster import spec as clusters

# More names than a run's processes create, with their temporary files.
_MAX_NAMES = 4 * clusters.MAX_TASKS
_NAME = re.compile(r'task_([0-9]{1,6})_of_([0-9]{1,6})')


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
    self._is_written = False

  def sync(self, index: int, count: int, address: str) -> dict[int, str | None]:
    """Writes this process's address, and reads those of all processes.

    Returns:
      {index: 'host:port'}, with None for a process without file.

    Raises:
      clusters.ClusterError: the folder belongs to another run or is not
        writable.
    """
    try:
      if not self._is_written:
        os.makedirs(self.name, exist_ok=True)
        self._write_once(self.entry_name(index, count), address)
        self._is_written = True
      self._check_run(count)
      return {i: _read(self.entry_name(i, count)) for i in range(count)}
    except OSError as error:
      raise clusters.ClusterError(
        f'rendezvous_dir: expected a folder to write to, received: {error}. '
        'Check its path and permissions.'
      ) from error

  def entry_name(self, index: int, count: int) -> str:
    """Returns the path of a process's file."""
    return os.path.join(self.name, f'task_{index}_of_{count}')

  def _write_once(self, path: str, address: str) -> None:
    """Writes a file atomically, unless it exists."""
    staged = f'{path}.{secrets.token_hex(8)}'
    with open(staged, 'x', encoding='ascii') as file:
      file.write(f'{address}\n')
    try:
      # Unlike a rename, a link replaces no existing file.
      os.link(staged, path)
    except FileExistsError:
      return
    finally:
      os.unlink(staged)

  def _check_run(self, count: int) -> None:
    """Refuses a folder of another run, or one with too many other files."""
    with os.scandir(self.name) as entries:
      names = [one.name for one in itertools.islice(entries, _MAX_NAMES + 1)]
    if len(names) > _MAX_NAMES:
      raise clusters.ClusterError(
        f'{self.name}: expected a folder of one run, received more than '
        f'{_MAX_NAMES} names in it. {self.remedy}'
      )
    for name in names:
      match = _NAME.fullmatch(name)
      if match and int(match[2]) != count:
        raise clusters.ClusterError(
          f'{os.path.join(self.name, name)}: expected files of {count} '
          f'processes, received one of {int(match[2])}: another run used this '
          f'folder. {self.remedy}'
        )


def _read(path: str) -> str | None:
  """Reads the line in a file; None if there is no file."""
  try:
    # A link could point anywhere, and reading a pipe could block forever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
  except FileNotFoundError:
    return None
  except OSError as error:
    raise _not_a_plain_file(path, error.strerror) from error
  if not stat.S_ISREG(os.fstat(descriptor).st_mode):
    os.close(descriptor)
    raise _not_a_plain_file(path, 'another kind of file')
  with open(descriptor, 'rb') as file:
    content = file.read(rendezvous.MAX_BYTES + 1)
  line = content.decode('ascii', 'replace')
  if not line.endswith('\n') or len(content) > rendezvous.MAX_BYTES:
    raise clusters.ClusterError(
      f'{path}: expected a line of host:port, received {clusters.quote(line)}. '
      'Check who can write to this folder, or give another --rendezvous_dir.'
    )
  return line[:-1]


def _not_a_plain_file(path: str, received: str | None) -> clusters.ClusterError:
  return clusters.ClusterError(
    f'{path}: expected a plain file to read, received: {received}. Check who '
    'can write to this folder, or give another --rendezvous_dir.'
  )
