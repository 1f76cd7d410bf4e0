"""The directory of a run: creating, clearing and locking it."""

import contextlib
import math
import os
import pathlib
import re
import shutil
from collections.abc import Iterator

from slim.datasets.records import disk
from terngrad import errors
from terngrad.checkpoint import best

# The step at which a run ended before max_steps.
_END = 'stopped_early'
# Files that a trainer deletes at its start: its mark of the end, and unfinished
# files that a killed trainer leaves behind.
_UNFINISHED = (
  rf'{_END}|checkpoint\.tmp.*|metrics\.jsonl\.\d+\.tmp|\.writable\.\d+'
  r'|\.(metrics\.jsonl|checkpoint|trackers\.json)\.[0-9a-f]{8}\.tmp'
  r'|model\.ckpt-\d+(_temp|\..*\.tempstate\d+)'
)
_RUN_FILES = (
  r'checkpoint|events\.out\.tfevents\..*|metrics\.jsonl|trackers\.json'
  rf'|model\.ckpt-\d+\..*|{_UNFINISHED}'
)


# Files whose presence shows that a run has used the directory.
_MARKERS = r'checkpoint|metrics\.jsonl|model\.ckpt-\d+\.index'


def find_run(path: str, flag: str) -> str:
  """Finds the --train_dir of a run from the path that a user gives.

  Args:
    path: the run's --train_dir, or the directory that holds it as `train`.
    flag: the flag that gave the path, for the error message.

  Returns:
    The path of the --train_dir.

  Raises:
    errors.ConfigError: there is no run.
  """
  for folder in (path, os.path.join(path, 'train')):
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
      if path and any(re.fullmatch(_MARKERS, n) for n in os.listdir(folder)):
        return folder
  raise errors.ConfigError(
    f'{flag}: expected the --train_dir of a run, or the folder that holds it '
    f'as `train`, received {path!r}, where no run has written anything. Check '
    'the path.'
  )


@contextlib.contextmanager
def lock(path: str | os.PathLike[str]) -> Iterator[None]:
  """Locks a directory against other trainers until the block ends.

  The operating system releases the lock when the process ends.

  Raises:
    errors.ConfigError: another trainer holds the lock.
  """
  descriptor = os.open(path, os.O_RDONLY)
  try:
    # Some network file systems cannot lock directories; no lock is held there.
    is_alone = True
    with contextlib.suppress(OSError):
      is_alone = disk.lock(descriptor)
    if not is_alone:
      raise errors.ConfigError(
        f'train_dir: expected a folder that no other trainer uses, received '
        f'{path}, which a trainer is using. Wait for it, stop it, or choose '
        'another --train_dir.'
      )
    yield
  finally:
    os.close(descriptor)


def make(path: str | os.PathLike[str]) -> None:
  """Creates the directory of a run, and its parents.

  Raises:
    errors.ConfigError: the directory is not writable.
  """
  folder = pathlib.Path(path)
  try:
    disk.make_folder(folder)
    probe = folder / f'.writable.{os.getpid()}'
    probe.touch()
    probe.unlink()
  except OSError as error:
    raise errors.ConfigError(
      f'train_dir: expected a folder that can be written, received {path} '
      f'({error.strerror}). Choose another --train_dir or fix its permissions.'
    ) from error


def clear(path: str | os.PathLike[str], overwrite: bool) -> None:
  """Deletes the unfinished files of killed trainers from a directory.

  Args:
    path: the directory; no other trainer may be using it.
    overwrite: True also deletes everything that an earlier run wrote there.

  Raises:
    errors.ConfigError: a file cannot be deleted.
  """
  try:
    _clear(pathlib.Path(path), overwrite)
  except OSError as error:
    raise errors.ConfigError(
      f'train_dir: expected a folder whose files can be deleted, received '
      f'{error.filename or path} ({error.strerror}). Choose another '
      '--train_dir or fix its permissions.'
    ) from error


def _clear(path: pathlib.Path, overwrite: bool) -> None:
  names = re.compile(_RUN_FILES if overwrite else _UNFINISHED)
  for entry in path.iterdir():
    if not names.fullmatch(entry.name):
      continue
    if entry.is_file():
      entry.unlink()
    elif entry.name.endswith('_temp'):
      shutil.rmtree(entry)
  if overwrite:
    best.clear(path)
    # Profiles of --profile_steps, which TensorBoard would show with new ones.
    shutil.rmtree(path / 'plugins' / 'profile', ignore_errors=True)


def mark_end(path: str | os.PathLike[str], step: int) -> None:
  """Records that a run ended at a step before max_steps; `clear` undoes it."""
  disk.write_text(os.path.join(path, _END), f'{step}\n')


def early_end(path: str | os.PathLike[str]) -> float:
  """Returns the step that `mark_end` recorded; infinity without one."""
  try:
    return int(pathlib.Path(path, _END).read_text(encoding='ascii'))
  except (OSError, ValueError):
    return math.inf
