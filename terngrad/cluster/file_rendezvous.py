"""A place to meet in a folder of a shared file system; see `rendezvous`."""

import itertools
import os
import re
import secrets
import stat

from terngrad.cluster import rendezvous
from terngrad.cluster import spec as clusters

# More names than a run's processes leave, with what they write at the moment.
_MOST_NAMES = 4 * clusters.MAX_TASKS
_NAME = re.compile(r'task_([0-9]{1,6})_of_([0-9]{1,6})')


class Folder:
  """A folder with a file a process.

  Attributes:
    name: its path.
    another: how a run gets another one.
  """

  another = 'Give this run another --rendezvous_dir.'

  def __init__(self, path: str) -> None:
    """Makes the folder where it is missing.

    Args:
      path: the run's own, on a file system that all share.

    Raises:
      clusters.ClusterError: it is none.
    """
    if not path:
      raise clusters.ClusterError(
        'rendezvous_dir: expected a folder that all processes share, one a '
        'run, received nothing. Give every process the same.'
      )
    self.name = path
    self._left = False

  def look(self, index: int, count: int, address: str) -> dict[int, str | None]:
    """See `rendezvous.Place`."""
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
        'Check its path and rights.'
      ) from error

  def where(self, index: int, count: int) -> str:
    """The path of the file of a process."""
    return os.path.join(self.name, f'task_{index}_of_{count}')

  def _leave(self, path: str, address: str) -> None:
    """Writes a whole file at once, unless there is one."""
    staged = f'{path}.{secrets.token_hex(8)}'
    with open(staged, 'x', encoding='ascii') as file:
      file.write(f'{address}\n')
    try:
      # Unlike a rename, a link replaces nothing.
      os.link(staged, path)
    except FileExistsError:
      return
    finally:
      os.unlink(staged)

  def _check_run(self, count: int) -> None:
    """Refuses a folder of another run, or of much else."""
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
          f'processes, received one of {int(match[2])}: another run was here. '
          f'{self.another}'
        )


def _read(path: str) -> str | None:
  """The line in a file; None where there is no file."""
  try:
    # A link could lead anywhere, and a pipe would let this wait for ever.
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
  except FileNotFoundError:
    return None
  except OSError as error:
    raise _strange(path, error.strerror) from error
  if not stat.S_ISREG(os.fstat(number).st_mode):
    os.close(number)
    raise _strange(path, 'something else')
  with open(number, 'rb') as file:
    content = file.read(rendezvous.MAX_BYTES + 1)
  line = content.decode('ascii', 'replace')
  if not line.endswith('\n') or len(content) > rendezvous.MAX_BYTES:
    raise clusters.ClusterError(
      f'{path}: expected a line of host:port, received {clusters.shown(line)}. '
      'Look who can write to this folder, or give another --rendezvous_dir.'
    )
  return line[:-1]


def _strange(path: str, received: str | None) -> clusters.ClusterError:
  return clusters.ClusterError(
    f'{path}: expected a plain file to read, received: {received}. Look who '
    'can write to this folder, or give another --rendezvous_dir.'
  )
