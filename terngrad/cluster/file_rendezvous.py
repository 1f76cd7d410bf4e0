"""Rendezvous in a folder of a shared file system; see `rendezvous`."""

import itertools
import os
import re
import secrets
import stat

from terngrad.cluster import rendezvous
from terngrad.cluster import spec as clusters

# More names than a run's processes create, with their temporary files.
_MOST_NAMES = 4 * clusters.MAX_TASKS
_NAME = re.compile(r'task_([0-9]{1,6})_of_([0-9]{1,6})')


class Folder:
  """A folder with one file per process.

  Attributes:
    name: its path.
    another: advice for messages: how to use another folder.
  """

  another = 'Give this run another --rendezvous_dir.'

  def __init__(self, path: str) -> None:
    """Checks the path; `look` creates the folder if it is missing.

    Args:
      path: a folder for this run only, on a file system that all processes
        share.

    Raises:
      clusters.ClusterError: the path is empty.
    """
    if not path:
      raise clusters.ClusterError(
        'rendezvous_dir: expected a folder that all processes of this run, and '
        'no others, share, received nothing. Give every process the same.'
      )
    self.name = path
    self._left = False

  def look(self, index: int, count: int, address: str) -> dict[int, str | None]:
    """Writes this process's address, and reads those of all processes.

    Returns:
      {index: 'host:port'}, with None for a process without file.

    Raises:
      clusters.ClusterError: the folder belongs to another run or is not
        writable.
    """
    try:
      if not self._left:
        os.makedirs(self.name, exist_ok=True)
        self._leave(self.where(index, count), address)
        self._left = True
      self._check_run(count)
      return {i: _read(self.where(i, count)) for i in range(count)}
    except OSError as error:
      raise clusters.ClusterError(
        f'rendezvous_dir: expected a folder to write to, received: {error}. '
        'Check its path and permissions.'
      ) from error

  def where(self, index: int, count: int) -> str:
    """Returns the path of a process's file."""
    return os.path.join(self.name, f'task_{index}_of_{count}')

  def _leave(self, path: str, address: str) -> None:
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
      names = [one.name for one in itertools.islice(entries, _MOST_NAMES + 1)]
    if len(names) > _MOST_NAMES:
      raise clusters.ClusterError(
        f'{self.name}: expected a folder of one run, received more than '
        f'{_MOST_NAMES} names in it. {self.another}'
      )
    for name in names:
      match = _NAME.fullmatch(name)
      if match and int(match[2]) != count:
        raise clusters.ClusterError(
          f'{os.path.join(self.name, name)}: expected files of {count} '
          f'processes, received one of {int(match[2])}: another run used this '
          f'folder. {self.another}'
        )


def _read(path: str) -> str | None:
  """Reads the line in a file; None if there is no file."""
  try:
    # A link could point anywhere, and reading a pipe could block forever.
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
  except FileNotFoundError:
    return None
  except OSError as error:
    raise _strange(path, error.strerror) from error
  if not stat.S_ISREG(os.fstat(number).st_mode):
    os.close(number)
    raise _strange(path, 'another kind of file')
  with open(number, 'rb') as file:
    content = file.read(rendezvous.MAX_BYTES + 1)
  line = content.decode('ascii', 'replace')
  if not line.endswith('\n') or len(content) > rendezvous.MAX_BYTES:
    raise clusters.ClusterError(
      f'{path}: expected a line of host:port, received {clusters.shown(line)}. '
      'Check who can write to this folder, or give another --rendezvous_dir.'
    )
  return line[:-1]


def _strange(path: str, received: str | None) -> clusters.ClusterError:
  return clusters.ClusterError(
    f'{path}: expected a plain file to read, received: {received}. Check who '
    'can write to this folder, or give another --rendezvous_dir.'
  )
