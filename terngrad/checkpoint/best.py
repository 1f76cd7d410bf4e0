"""The folder with the best checkpoint of a run."""

import contextlib
import os
import pathlib
import re
import shutil

from slim.datasets.records import disk
from terngrad.checkpoint import listing

FOLDER = 'best'
# The files of this module, with unfinished ones that a killed process leaves.
_FILES = re.compile(
  rf'\.?(checkpoint|{re.escape(listing.NAME)}-(\d+)\..*)(\.[0-9a-f]{{8}}\.tmp)?'
)


def keep(prefix: str) -> str:
  """Makes a checkpoint the only one of the folder `best` beside it.

  The files are linked, or copied where the file system has no links. Readers
  find the old checkpoint or the new one, even if the process is killed. Other
  files in the folder stay.

  Args:
    prefix: path prefix of a complete checkpoint.

  Returns:
    Its path prefix in the folder.

  Raises:
    OSError: the folder cannot be written.
  """
  source = pathlib.Path(prefix)
  folder = source.with_name(FOLDER)
  disk.make_folder(folder)
  before = _files(folder)
  # The data before the index, without which there is no checkpoint.
  for file in sorted(source.parent.glob(f'{source.name}.*')):
    with disk.replace_file(folder / file.name) as hidden:
      try:
        os.link(file, hidden)
      except OSError:
        shutil.copyfile(file, hidden)
  disk.write_text(
    folder / 'checkpoint',
    f'model_checkpoint_path: "{source.name}"\n'
    f'all_model_checkpoint_paths: "{source.name}"\n',
  )
  for file in before:
    if file.name != 'checkpoint' and not file.name.startswith(
      f'{source.name}.'
    ):
      file.unlink(missing_ok=True)
  return str(folder / source.name)


def step_in(train_dir: str | os.PathLike[str]) -> int | None:
  """Returns the step of the best checkpoint of a run; None without one."""
  prefixes = listing.prefixes(os.path.join(train_dir, FOLDER))
  number = prefixes[-1].rpartition('-')[2] if prefixes else ''
  # A damaged list can name anything.
  return int(number) if number.isdecimal() else None


def clear(train_dir: str | os.PathLike[str]) -> None:
  """Deletes the best checkpoint of a run, and its folder if nothing is left."""
  folder = pathlib.Path(train_dir, FOLDER)
  if not folder.is_dir():
    return
  for file in _files(folder):
    file.unlink()
  # Other files stay.
  with contextlib.suppress(OSError):
    folder.rmdir()


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
  return [
    path
    for path in folder.iterdir()
    if _FILES.fullmatch(path.name) and not path.is_dir()
  ]
