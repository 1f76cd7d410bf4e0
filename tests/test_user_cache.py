"""Files of the user's cache have their name only when they are complete."""

import os

import pytest

from terngrad import user_cache


def test_a_file_is_replaced_and_nothing_else_remains(tmp_path):
  path = tmp_path / 'file'
  for content in (b'old', b'new'):
    user_cache.replace(path, content)
  assert path.read_bytes() == b'new'
  assert [*tmp_path.iterdir()] == [path]


def test_a_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
  path = tmp_path / 'file'
  user_cache.replace(path, b'old')

  def fail(descriptor):
    raise OSError('the disk is full')

  monkeypatch.setattr(os, 'fsync', fail)
  with pytest.raises(OSError, match='the disk is full'):
    user_cache.replace(path, b'new')
  assert path.read_bytes() == b'old'
  assert [*tmp_path.iterdir()] == [path]
