"""Errors of invalid options."""

import os
import pathlib
import traceback

import pytest

from terngrad import errors


def test_a_value_error_becomes_a_config_error():
  with pytest.raises(errors.ConfigError, match='^no codec$') as caught:
    with errors.as_config_error():
      raise ValueError('no codec')
  assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
  'error', [errors.CheckpointError('damaged'), RuntimeError('lost')]
)
def test_other_errors_are_unchanged(error):
  with pytest.raises(type(error)) as caught:
    with errors.as_config_error():
      raise error
  assert caught.value is error


def test_packages_inside_the_folder_of_pythons_library_are_a_users(
  tmp_path, monkeypatch
):
  library = tmp_path / 'python' / 'site-packages'
  library.mkdir(parents=True)
  mine, theirs = library / 'mine.py', library.parent / 'pkgutil.py'
  monkeypatch.setattr(os, '__file__', str(library.parent / 'os.py'))
  frames = []
  for path in (mine, theirs, pathlib.Path('<frozen importlib._bootstrap>')):
    if path.is_absolute():
      path.touch()
    frames.append(traceback.FrameSummary(str(path), 1, 'name', line=''))
  assert errors.author_frame(frames) is frames[0]
  assert errors.author_frame(frames[1:]) is None
