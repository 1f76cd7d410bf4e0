"""The folder with the best checkpoint of a run."""

import os
import pathlib
import shutil

from slim.datasets.records import disk

FOLDER = 'best'


def keep(prefix: str) -> str:
  """Makes a checkpoint the only one of the folder `best` beside it.

  The files are linked, or copied where the file system has no links. Readers
  find the old checkpoint or the new one, even if the process is killed.

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
  before = set(folder.iterdir())
  for file in source.parent.glob(f'{source.name}.*'):
    with disk.replacing(folder / file.name) as hidden:
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
