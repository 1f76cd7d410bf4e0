"""Records `checkpoints/` and `continued.json`.

`python -m tests.bits.record_checkpoints [NAME...]`, only for code whose bits
are known to be right. An existing checkpoint is not replaced: on another kind
of machine it is continued, and the digest at its end is recorded.
"""

import pathlib
import shutil
import sys
import tempfile

from terngrad.cluster import devices
from tests.bits import continued
from tests.bits import recorded


def main(names):
  devices.configure(2)
  for name in names or continued.RUNS:
    with tempfile.TemporaryDirectory() as folder:
      whole, again = (
        pathlib.Path(folder, 'whole'),
        pathlib.Path(folder, 'again'),
      )
      stored = continued.FOLDER / name
      if not stored.exists():
        continued.train_processes(name, whole, continued.LAST)
        _store(whole, stored)
      continued.put_back(name, again)
      continued.train_processes(name, again, continued.LAST)
      digest = continued.digest(again, continued.LAST)
      if whole.exists():
        assert digest == continued.digest(whole, continued.LAST)
      recorded.add('continued', {name: digest})
      sys.stdout.write(f'{name}: {digest}\n')
      sys.stdout.flush()


def _store(train_dir, folder):
  """The first checkpoint of a run, and a list that names it alone."""
  folder.mkdir(parents=True)
  name = f'model.ckpt-{continued.FIRST}'
  for path in train_dir.glob(f'{name}.*'):
    shutil.copy(path, folder)
  (folder / 'checkpoint').write_text(
    f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'
  )


if __name__ == '__main__':
  main(sys.argv[1:])
