import json
import os
import shutil

import pytest

from slim import errors
from slim.datasets.records import counts
from slim.datasets.records import records
from tests.slim import record_files


@pytest.fixture
def folder(tmp_path):
  for number, count in enumerate((3, 5)):
    record_files.write(tmp_path / f'train-{number}', [b'x'] * count)
  return tmp_path


def count(folder):
  return [file.count for file in counts.count(records.find(folder, 'train'))]


def test_files_are_counted_once(folder, monkeypatch):
  assert count(folder) == [3, 5]
  monkeypatch.setattr(records, 'scan', None)  # calling it would fail
  assert count(folder) == [3, 5]


def test_changed_file_is_counted_again(folder):
  count(folder)
  record_files.write(folder / 'train-1', [b'x'] * 7)
  assert count(folder) == [3, 7]


def test_file_of_the_same_size_but_another_time_is_counted_again(folder):
  count(folder)
  # 16 bytes of framing a record: as long as five records of one byte.
  record_files.write(folder / 'train-1', [b'x' * 21, b'y' * 16, b''])
  os.utime(folder / 'train-1', ns=(1, 1))
  assert (folder / 'train-1').stat().st_size == 5 * 17
  assert count(folder) == [3, 3]


def test_a_cache_that_comes_with_a_copied_folder_is_not_used(folder, tmp_path):
  count(folder)
  path = folder / counts.FILE_NAME
  path.write_text(
    path.read_text().replace('"num_examples": 5', '"num_examples": 9')
  )
  assert count(folder) == [3, 9]
  copied = shutil.copytree(folder, tmp_path / 'copied')  # keeps size and mtime
  assert count(copied) == [3, 5]


def test_splits_share_the_cache(folder, monkeypatch):
  record_files.write(folder / 'test-0', [b'x'])
  count(folder)
  counts.count(records.find(folder, 'test'))
  monkeypatch.setattr(records, 'scan', None)
  assert count(folder) == [3, 5]


@pytest.mark.parametrize(
  'content',
  [
    '',
    '[]',
    '[' * 100000,
    '{"format": 2}',
    '{"format": 1, "files": []}',
    '{"format": 1, "files": {"train-0": 3}}',
    '{"format": 1, "files": {"train-0": {"size": 1}}}',
  ],
)
def test_damaged_caches_are_not_used(folder, content):
  (folder / counts.FILE_NAME).write_text(content)
  assert count(folder) == [3, 5]


@pytest.mark.parametrize('number', [-1, 0, True, 1.5, '3'])
def test_impossible_counts_are_not_used(folder, number):
  count(folder)
  path = folder / counts.FILE_NAME
  content = json.loads(path.read_text())
  content['files']['train-0']['num_examples'] = number
  path.write_text(json.dumps(content))
  assert count(folder) == [3, 5]


def test_read_only_folder_is_counted(folder, monkeypatch):
  def refuse(*arguments, **options):
    raise PermissionError(13, 'Permission denied')

  monkeypatch.setattr(counts.disk, 'write_text', refuse)
  assert count(folder) == [3, 5]
  assert not (folder / counts.FILE_NAME).exists()


def test_broken_link_is_refused(folder):
  (folder / 'train-2').symlink_to(folder / 'nowhere')
  with pytest.raises(errors.DataError, match='train-2: expected a readable'):
    count(folder)
