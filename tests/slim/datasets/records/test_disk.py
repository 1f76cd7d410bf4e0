"""Files that are whole or not there, and locks."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from slim.datasets.records import disk

ROOT = pathlib.Path(__file__).resolve().parents[4]

# Kills itself in the call of a function of `os` whose name and number it gets.
KILLED = """
import os, signal, sys
from slim.datasets.records import disk
path, name, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
function = getattr(os, name)
def killing(*arguments, **options):
  global calls
  calls -= 1
  if calls < 0:
    os.kill(os.getpid(), signal.SIGKILL)
  return function(*arguments, **options)
setattr(os, name, killing)
disk.write_text(path, 'new' * 100_000)
"""

HELD = """
import os, sys
from slim.datasets.records import disk
descriptor = os.open(sys.argv[1], os.O_RDONLY)
print(disk.lock(descriptor), flush=True)
sys.stdin.read()
"""


def run(program, *arguments, **options):
  return subprocess.Popen(
    [sys.executable, '-c', program, *map(str, arguments)],
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    text=True,
    **options,
  )


@pytest.mark.parametrize(
  ('name', 'calls', 'expected'),
  [
    ('fsync', 0, 'old'),
    ('replace', 0, 'old'),
    ('fsync', 1, 'new' * 100_000),
  ],
)
def test_a_killed_process_leaves_the_old_file_or_the_new_one(
  tmp_path, name, calls, expected
):
  path = tmp_path / 'file'
  path.write_text('old')
  with run(KILLED, path, name, calls) as child:
    assert child.wait(60) == -signal.SIGKILL
  assert path.read_text() == expected
  # What is left is hidden, and in nobody's way.
  assert all(p == path or p.name[0] == '.' for p in tmp_path.iterdir())
  disk.write_text(path, 'newer')
  assert path.read_text() == 'newer'


@pytest.mark.parametrize('is_there', [False, True])
def test_a_write_that_fails_changes_nothing(tmp_path, is_there):
  path = tmp_path / 'file'
  if is_there:
    path.write_text('old')
  before = sorted(tmp_path.iterdir())
  with pytest.raises(OSError, match='no space'):
    with disk.replace_file(path) as hidden:
      hidden.write_text('half')
      raise OSError('no space')
  assert sorted(tmp_path.iterdir()) == before
  assert not is_there or path.read_text() == 'old'


@pytest.mark.parametrize('is_linked', [False, True])
def test_a_pipe_or_device_is_not_replaced(tmp_path, is_linked):
  pipe = path = tmp_path / 'pipe'
  os.mkfifo(pipe)
  if is_linked:
    path = tmp_path / 'link'
    path.symlink_to(pipe)
  with pytest.raises(OSError, match='it is a device, a pipe or a socket'):
    disk.write_text(path, 'text')
  assert pipe.is_fifo()
  assert path.is_symlink() == is_linked


def test_a_file_has_the_rights_of_any_new_file(tmp_path):
  disk.write_text(tmp_path / 'file', 'text')
  (tmp_path / 'plain').touch()
  modes = {path.stat().st_mode for path in tmp_path.iterdir()}
  assert len(modes) == 1


def test_bytes_are_on_the_disk_before_they_have_the_name(tmp_path, monkeypatch):
  seen = []
  path = tmp_path / 'file'
  monkeypatch.setattr(
    disk, 'sync', lambda synced: seen.append((synced, path.exists()))
  )
  disk.write_text(path, 'text')
  (hidden, before), (folder, after) = seen
  assert (hidden.parent, before) == (tmp_path, False)
  assert (folder, after) == (tmp_path, True)


def test_a_folder_is_there_with_all_its_files_or_not_at_all(tmp_path):
  path = tmp_path / 'new' / 'folder'
  with pytest.raises(ValueError, match='spoilt'):
    with disk.create_folder(path) as made:
      made.mkdir()
      (made / 'one').touch()
      raise ValueError('spoilt')
  assert list(path.parent.iterdir()) == []
  with disk.create_folder(path) as made:
    (made / 'inner').mkdir(parents=True)
    (made / 'inner' / 'one').touch()
    assert not path.exists()
  assert list(path.parent.iterdir()) == [path]
  assert (path / 'inner' / 'one').is_file()


def test_a_folder_with_files_is_not_replaced(tmp_path):
  (tmp_path / 'folder').mkdir()
  (tmp_path / 'folder' / 'old').touch()
  with pytest.raises(OSError):
    with disk.create_folder(tmp_path / 'folder') as made:
      made.mkdir()
  assert [p.name for p in tmp_path.iterdir()] == ['folder']
  assert (tmp_path / 'folder' / 'old').is_file()


@pytest.mark.parametrize('is_folder', [False, True])
def test_a_lock_ends_with_its_process(tmp_path, is_folder):
  path = tmp_path if is_folder else tmp_path / 'file'
  path.touch()
  descriptor = os.open(path, os.O_RDONLY)
  pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}
  with run(HELD, path, **pipes) as first:
    assert first.stdout.readline() == 'True\n'
    assert not disk.lock(descriptor)
    first.kill()
  assert disk.lock(descriptor)
  os.close(descriptor)


@pytest.mark.parametrize('below', ['', 'new/run'])
def test_a_broken_link_is_named_when_a_folder_is_created(tmp_path, below):
  link = tmp_path / 'link'
  link.symlink_to('gone')
  with pytest.raises(FileNotFoundError) as caught:
    disk.make_folder(link / below)
  assert (
    caught.value.strerror == f'{link} is a link to gone, which does not exist'
  )
  (tmp_path / 'gone').mkdir()
  disk.make_folder(link / below)
  assert (tmp_path / 'gone' / below).is_dir()


def test_a_file_instead_of_a_folder_is_an_error(tmp_path):
  (tmp_path / 'file').touch()
  with pytest.raises(FileExistsError):
    disk.make_folder(tmp_path / 'file')
