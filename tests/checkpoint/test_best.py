"""The best checkpoint's folder: always one that can be read."""

import os
import pathlib

import pytest

from terngrad.checkpoint import best
from terngrad.checkpoint import listing


def write(folder, step):
  for ending in ('index', 'data-00000-of-00001'):
    (folder / f'model.ckpt-{step}.{ending}').write_text(f'{step} {ending}')
  return str(folder / f'model.ckpt-{step}')


def test_only_the_newest_best_is_kept(tmp_path):
  for step in (3, 12, 7):
    kept = best.keep(write(tmp_path, step))
  assert kept == str(tmp_path / 'best' / 'model.ckpt-7')
  assert listing.prefixes(tmp_path / 'best') == [kept]
  assert sorted(os.listdir(tmp_path / 'best')) == [
    'checkpoint',
    'model.ckpt-7.data-00000-of-00001',
    'model.ckpt-7.index',
  ]
  assert (tmp_path / 'model.ckpt-3.index').exists()


def test_the_same_checkpoint_may_be_kept_again(tmp_path):
  prefix = write(tmp_path, 1)
  assert best.keep(prefix) == best.keep(prefix)
  assert len(os.listdir(tmp_path / 'best')) == 3


def test_files_are_copied_where_links_are_refused(tmp_path, monkeypatch):
  def refuse(*paths):
    raise PermissionError(1, 'no links here')

  monkeypatch.setattr(os, 'link', refuse)
  best.keep(write(tmp_path, 4))
  path = tmp_path / 'best' / 'model.ckpt-4.index'
  assert path.read_text() == '4 index'
  assert path.stat().st_nlink == 1


@pytest.mark.parametrize('left', ['link', 'list', 'unlink'])
def test_killed_at_any_point_one_checkpoint_can_be_read(
  tmp_path, monkeypatch, left
):
  """The process ends before the named step of the second one."""
  first = best.keep(write(tmp_path, 1))

  unlink = pathlib.Path.unlink

  def killed(*values, **more):
    if left == 'unlink' and not values[0].name.startswith('model.ckpt-1.'):
      return unlink(*values, **more)
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    if left == 'link':
      patch.setattr(os, 'link', killed)
    elif left == 'list':
      patch.setattr(best.disk, 'write_text', killed)
    else:
      patch.setattr(pathlib.Path, 'unlink', killed)
    with pytest.raises(KeyboardInterrupt):
      best.keep(write(tmp_path, 2))
  (newest,) = listing.prefixes(tmp_path / 'best')
  expected = first if left != 'unlink' else str(tmp_path / 'best/model.ckpt-2')
  assert newest == expected and os.path.exists(f'{newest}.index')


def test_other_files_in_the_folder_stay(tmp_path):
  best.keep(write(tmp_path, 1))
  folder = tmp_path / 'best'
  (folder / 'net.keras').touch()
  (folder / 'eval').mkdir()
  best.keep(write(tmp_path, 2))
  assert best.step_in(tmp_path) == 2
  best.clear(tmp_path)
  assert sorted(os.listdir(folder)) == ['eval', 'net.keras']
  assert best.step_in(tmp_path) is None


def test_a_damaged_list_names_no_best_step(tmp_path):
  best.keep(write(tmp_path, 2))
  (tmp_path / 'best' / 'model.ckpt-2.index').rename(
    tmp_path / 'best' / 'foo.index'
  )
  (tmp_path / 'best' / 'checkpoint').write_text(
    'model_checkpoint_path: "foo"\nall_model_checkpoint_paths: "foo"\n'
  )
  assert best.step_in(tmp_path) is None


def test_a_cleared_folder_is_gone_with_what_a_killed_process_left(tmp_path):
  best.keep(write(tmp_path, 1))
  (tmp_path / 'best' / '.checkpoint.0a1b2c3d.tmp').touch()
  (tmp_path / 'best' / '.model.ckpt-9.index.0a1b2c3d.tmp').touch()
  best.clear(tmp_path)
  assert not (tmp_path / 'best').exists()
  best.clear(tmp_path)
