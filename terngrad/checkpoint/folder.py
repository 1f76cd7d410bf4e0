"""The folder of a run: made, emptied, and held by one trainer at a time."""

import contextlib
import os
import pathlib
import re
import shutil

from slim.datasets.records import disk
from terngrad import errors

_OWN_FILES = re.compile(
  r'checkpoint|events\.out\.tfevents\..*|metrics\.jsonl(\.\d+\.tmp)?'
  r'|\.metrics\.jsonl\.[0-9a-f]{8}\.tmp'
  r'|model\.ckpt-\d+(\..*|_temp)'
)


@contextlib.contextmanager
def alone_in(path):
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


def make(path, overwrite):
  """Makes the folder of a run.

  Args:
    path: of it; its parents are made too.
    overwrite: True deletes what an earlier run wrote into it.

  Raises:
    errors.ConfigError: it cannot be written.
  """
  folder = pathlib.Path(path)
  try:
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f'.writable.{os.getpid()}'
    probe.touch()
    probe.unlink()
  except OSError as error:
    raise errors.ConfigError(
      f'train_dir: expected a folder that can be written, received {path} '
      f'({error.strerror}). Choose another --train_dir or mend its permissions.'
    ) from error
  if not overwrite:
    return
  for entry in folder.iterdir():
    if not _OWN_FILES.fullmatch(entry.name):
      continue
    if entry.is_file():
      entry.unlink()
    elif entry.name.endswith('_temp'):
      shutil.rmtree(entry)
