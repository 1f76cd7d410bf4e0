"""The folder for files that can be made again, in the user's cache."""

import os
import pathlib
import stat
import tempfile


def folder() -> pathlib.Path:
  """Returns `$XDG_CACHE_HOME/terngrad`, or `~/.cache/terngrad`.

  The variable counts only if it holds an absolute path. The folder may be
  missing.

  Raises:
    OSError: the user has no home folder.

  References:
    XDG Base Directory Specification,
    https://specifications.freedesktop.org/basedir-spec/latest/
  """
  cache = pathlib.Path(os.environ.get('XDG_CACHE_HOME', ''))
  if not cache.is_absolute():
    try:
      cache = pathlib.Path.home() / '.cache'
    except RuntimeError as error:
      raise OSError(
        f'cache: expected a home folder of the user, received none ({error}). '
        'Set XDG_CACHE_HOME to a folder.'
      ) from error
  return cache / 'terngrad'


def private_folder(name: str) -> pathlib.Path:
  """Returns a folder in `folder()` that nobody else can read, write or replace.

  It is made if it is missing, with mode 0700. For files that are executed.

  Raises:
    OSError: it cannot be made; it belongs to somebody else or others can use
      it; or others can write to one of the two folders above.
  """
  parent = folder()
  path = parent / name
  parent.mkdir(parents=True, exist_ok=True, mode=0o700)
  path.mkdir(mode=0o700, exist_ok=True)
  for one, forbidden, owners in (
    (path, 0o077, {os.getuid()}),
    (parent, 0o022, {0, os.getuid()}),
    (parent.parent, 0o022, {0, os.getuid()}),
  ):
    status = one.stat()
    is_open = status.st_mode & forbidden and not (
      # Nobody can replace what others made there, as in /tmp.
      one == parent.parent and status.st_mode & stat.S_ISVTX
    )
    if is_open or status.st_uid not in owners:
      raise PermissionError(
        f'{one}: expected a folder of this user that others cannot '
        f'{"use" if one == path else "write to"}, received mode '
        f'{stat.S_IMODE(status.st_mode):04o} of user {status.st_uid}. Run '
        f'chmod go-w{"rx" if one == path else ""}, or remove it.'
      )
  return path


def replace(path: pathlib.Path, content: bytes) -> None:
  """Writes a file that is complete whenever it has its name.

  Raises:
    OSError: it cannot be written; the old file stays.
  """
  handle, temporary = tempfile.mkstemp(dir=path.parent)
  try:
    with os.fdopen(handle, 'wb') as file:
      file.write(content)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
  except BaseException:
    os.unlink(temporary)
    raise
