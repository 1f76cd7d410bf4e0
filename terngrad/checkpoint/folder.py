"""The folder of a run: made, emptied, and held by one trainer at a time."""

import contextlib
import os
import pathlib
import re
import shutil
from collections.abc import Iterator

from slim.datasets.records import disk
from terngrad import errors

# What a trainer that was killed leaves of files that it had not finished.
_UNFINISHED = (
  r'checkpoint\.tmp.*|metrics\.jsonl\.\d+\.tmp|\.writable\.\d+'
  r'|\.(metrics\.jsonl|checkpoint)\.[0-9a-f]{8}\.tmp'
  r'|model\.ckpt-\d+(_temp|\..*\.tempstate\d+)'
)
_OWN_FILES = (
  r'checkpoint|events\.out\.tfevents\..*|metrics\.jsonl'
  rf'|model\.ckpt-\d+\..*|{_UNFINISHED}'
)


# Files that show that a run is here, or was.
_OF_A_RUN = r'checkpoint|metrics\.jsonl|model\.ckpt-\d+\.index'


def find_run(path: str, flag: str) -> str:
  """The folder that a run wrote its files to, by the name that a person gives.

  Args:
    path: of the run's --train_dir, or of the folder that holds it as `train`.
    flag: whose value it is, for the message.

  Returns:
    The path of the --train_dir.

  Raises:
    errors.ConfigError: there is no run.
  """
  for folder in (path, os.path.join(path, 'train')):
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
      if path and any(re.fullmatch(_OF_A_RUN, n) for n in os.listdir(folder)):
        return folder
  raise errors.ConfigError(
    f'{flag}: expected the --train_dir of a run, or the folder that holds it '
    f'as `train`, received {path!r}, where no run has written anything. Check '
    'the path.'
  )


@contextlib.contextmanager
def alone_in(path: str | os.PathLike[str]) -> Iterator[None]:
  """Keeps other trainers out of a folder; the lock goes with the process.

  Args:
    path: of a folder that exists.

  Raises:
    errors.ConfigError: another trainer is in it.
  """
  descriptor = os.open(path, os.O_RDONLY)
  try:
    # Some network file systems lock no folders; then nobody is kept out.
    is_alone = True
    with contextlib.suppress(OSError):
      is_alone = disk.lock(descriptor)
    if not is_alone:
      raise errors.ConfigError(
        f'train_dir: expected a folder that no other trainer is at work in, '
        f'received {path}, where one is. Wait for it, stop it, or choose '
        'another --train_dir.'
      )
    yield
  finally:
    os.close(descriptor)


def make(path: str | os.PathLike[str]) -> None:
  """Makes the folder of a run.

  Args:
    path: of it; its parents are made too.

  Raises:
    errors.ConfigError: it cannot be written.
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
      f'({error.strerror}). Choose another --train_dir or mend its permissions.'
    ) from error


def clear(path: str | os.PathLike[str], overwrite: bool) -> None:
  """Deletes what killed trainers left unfinished in a folder.

  Args:
    path: of the folder; no other trainer may be in it.
    overwrite: True deletes all that an earlier run wrote into it.
  """
  names = re.compile(_OWN_FILES if overwrite else _UNFINISHED)
  for entry in pathlib.Path(path).iterdir():
    if not names.fullmatch(entry.name):
      continue
    if entry.is_file():
      entry.unlink()
    elif entry.name.endswith('_temp'):
      shutil.rmtree(entry)
