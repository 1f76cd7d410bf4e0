"""The folder for files that can be made again, in the user's cache."""

import os
import pathlib


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
