"""Exceptions whose messages are written for the user of a program."""

import contextlib
import os
import pathlib
import traceback
from collections.abc import Iterator
from collections.abc import Sequence
from importlib import util

from slim import errors as data_errors


class ConfigError(ValueError):
  """The requested configuration is not possible; nothing was written.

  The message says what was expected, what was received, and what to do.
  """


class CheckpointError(ConfigError):
  """A checkpoint is missing, damaged or belongs to another run."""


class TrainingError(RuntimeError):
  """Training had to stop; the last checkpoint is valid."""


@contextlib.contextmanager
def as_config_error() -> Iterator[None]:
  """Converts a ValueError raised in the block to a `ConfigError`."""
  try:
    yield
  except ConfigError:
    raise
  except ValueError as error:
    raise ConfigError(str(error)) from error


@contextlib.contextmanager
def explain_write_errors(where: str) -> Iterator[None]:
  """Raises `TrainingError` in a block whose files cannot be written.

  A closed output is not explained: it is no file of the program.

  Args:
    where: begins the message: the folder, or what writes the files.
  """
  try:
    yield
  except BrokenPipeError:
    raise
  except OSError as error:
    raise TrainingError(
      f'{where}: expected to write {error.filename or "its files"}, received: '
      f'{error.strerror or error}. Free some space, or choose another folder; '
      'the same command continues.'
    ) from error


def author_frame(
  frames: Sequence[traceback.FrameSummary],
) -> traceback.FrameSummary | None:
  """Returns the last frame in code of a user, or None if there is none.

  Code of Python's library, TensorFlow, terngrad and slim is not a user's.

  Args:
    frames: of a traceback, the innermost last.
  """
  spec = util.find_spec('tensorflow')
  files = os.__file__, spec and spec.origin, __file__, data_errors.__file__
  libraries = [pathlib.Path(path).parent for path in files if path]
  for frame in reversed(frames):
    path = pathlib.Path(frame.filename)
    if path.is_file() and not any(_contains(one, path) for one in libraries):
      return frame
  return None


def _contains(library: pathlib.Path, path: pathlib.Path) -> bool:
  """Returns whether a file is in a library, not in a package below it."""
  if not path.is_relative_to(library):
    return False
  return not _PACKAGES.intersection(path.relative_to(library).parts)


# Folders of installed packages, which may be in the folder of Python's library.
_PACKAGES = {'dist-packages', 'site-packages'}
