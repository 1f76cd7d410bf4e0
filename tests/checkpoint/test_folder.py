import os

import pytest

from slim.datasets.records import disk
from terngrad import errors
from terngrad.checkpoint import folder
from terngrad.sweep import warm

_HOLD = """
import signal, sys
from terngrad.checkpoint import folder
with folder.lock(sys.argv[1]):
  print('held', flush=True)
  signal.pause()
"""


def test_a_second_trainer_is_refused_until_the_first_ends(tmp_path):
  reading, writing = os.pipe()
  with open(writing, 'w') as out:
    first = warm.start(None, [_HOLD, tmp_path], out, out)
  with open(reading) as out:
    assert out.readline() == 'held\n'
  with pytest.raises(errors.ConfigError, match='no other trainer'):
    with folder.lock(tmp_path):
      pass
  first.kill()
  first.join()
  with folder.lock(tmp_path):
    pass


def test_a_folder_is_free_again_after_use(tmp_path):
  for _ in range(2):
    with folder.lock(tmp_path):
      pass


def test_no_trainer_is_refused_where_folders_have_no_locks(
  tmp_path, monkeypatch
):
  def no_locks(descriptor):
    raise OSError('no locks available')

  monkeypatch.setattr(disk, 'lock', no_locks)
  with folder.lock(tmp_path), folder.lock(tmp_path):
    pass


UNFINISHED = (
  'checkpoint.tmp0a1b2c',
  '.checkpoint.0123abcd.tmp',
  'metrics.jsonl.77.tmp',
  '.metrics.jsonl.0123abcd.tmp',
  '.writable.77',
  'model.ckpt-20.index.tempstate123',
  'model.ckpt-30_temp',
)
FINISHED = (
  'checkpoint',
  'events.out.tfevents.1.host.v2',
  'metrics.jsonl',
  'model.ckpt-20.index',
  'model.ckpt-20.data-00000-of-00001',
)
OTHERS = ('notes.txt', 'model.ckpt-best.index', 'metrics.jsonl.bak')


@pytest.mark.parametrize(
  ('overwrite', 'kept'),
  [(False, {*OTHERS, *FINISHED}), (True, {*OTHERS})],
)
def test_clearing_deletes_only_unfinished_files_of_trainers(
  tmp_path, overwrite, kept
):
  for name in (*UNFINISHED, *FINISHED, *OTHERS):
    path = tmp_path / name
    if name.endswith('_temp'):
      path.mkdir()
      path = path / 'part'
    path.touch()
  folder.make(tmp_path)
  assert len(list(tmp_path.iterdir())) == len(UNFINISHED + FINISHED + OTHERS)
  folder.clear(tmp_path, overwrite)
  assert {path.name for path in tmp_path.iterdir()} == kept


def test_a_path_that_is_a_file_is_refused(tmp_path):
  (tmp_path / 'file').touch()
  with pytest.raises(errors.ConfigError, match='expected a folder that can be'):
    folder.make(tmp_path / 'file')


@pytest.mark.parametrize(
  'name', ['metrics.jsonl', 'checkpoint', 'model.ckpt-20.index']
)
@pytest.mark.parametrize('below', ['', 'train'])
def test_a_run_is_found_by_its_folder_or_the_one_above(tmp_path, name, below):
  run_folder = tmp_path / below
  run_folder.mkdir(exist_ok=True)
  (run_folder / name).touch()
  assert folder.find_run(str(tmp_path), 'flag') == str(run_folder)
  assert folder.find_run(str(run_folder), 'flag') == str(run_folder)


@pytest.mark.parametrize('there', [None, 'train', 'photograph.jpg', 'eval'])
def test_a_folder_without_a_run_is_refused(tmp_path, there):
  if there:
    (tmp_path / 'run' / there).mkdir(parents=True)
  with pytest.raises(errors.ConfigError) as caught:
    folder.find_run(str(tmp_path / 'run'), 'runs')
  assert f"received '{tmp_path}/run', where no run" in str(caught.value)
  assert str(caught.value).startswith('runs: expected the --train_dir of')


def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch):
  (tmp_path / 'checkpoint').touch()
  monkeypatch.chdir(tmp_path)
  with pytest.raises(errors.ConfigError, match="received ''"):
    folder.find_run('', 'train_dir')


def test_the_mark_of_an_early_end_stays_until_the_next_start(tmp_path):
  assert folder.early_end(tmp_path) == float('inf')
  folder.mark_end(tmp_path, 15)
  assert folder.early_end(tmp_path) == 15
  folder.clear(tmp_path, overwrite=False)
  assert folder.early_end(tmp_path) == float('inf')


def test_files_that_cannot_be_deleted_are_one_line(tmp_path, monkeypatch):
  def refuse(path):
    raise PermissionError(1, 'Operation not permitted', str(path))

  (tmp_path / '.writable.77').touch()
  monkeypatch.setattr(folder.pathlib.Path, 'unlink', refuse)
  with pytest.raises(
    errors.ConfigError, match=r'train_dir: .*\.writable\.77 \(Operation not'
  ):
    folder.clear(tmp_path, overwrite=False)
