"""Costs are stored by machine and versions."""

import json
import pathlib

import pytest

from terngrad.machine import processor
from terngrad.measure.planning import cache
from terngrad.measure.planning import model

COSTS = {
  'ternary': model.Coding(1e-9, 2e-9, 3e-9, 0.01),
  'error_feedback+stc:ratio=0.01': model.Coding(4e-9, 0.0, 0.0),
}


@pytest.fixture
def file(tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  return cache.path()


def test_stored_costs_are_read_back_exactly(file):
  assert cache.read(file) == {}
  cache.write(file, COSTS)
  assert cache.read(file) == COSTS
  # Nothing else is left.
  assert [*file.parent.iterdir()] == [file]


def test_the_folder_is_that_of_the_xdg_specification(
  file, tmp_path, monkeypatch
):
  assert file.parent == tmp_path / 'terngrad'
  # The specification ignores relative paths.
  monkeypatch.setenv('HOME', str(tmp_path / 'home'))
  for value in ('', 'relative'):
    monkeypatch.setenv('XDG_CACHE_HOME', value)
    assert cache.path().parent == tmp_path / 'home' / '.cache' / 'terngrad'


def test_a_user_without_a_home_has_no_cache(monkeypatch):
  def refuse():
    raise RuntimeError('Could not determine home directory.')

  monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
  monkeypatch.setattr(pathlib.Path, 'home', refuse)
  with pytest.raises(OSError, match='home'):
    cache.path()


@pytest.mark.parametrize(
  'name',
  ['processor', 'cores', 'kernels', 'oneDNN', 'GPUs', 'terngrad', 'tensorflow']
  + ['numpy'],
)
def test_another_machine_or_version_has_another_file(file, monkeypatch, name):
  other = cache.machine() | {name: 'another'}
  monkeypatch.setattr(cache, 'machine', lambda: other)
  assert cache.path() != file


def test_costs_of_another_machine_are_refused(file, monkeypatch):
  cache.write(file, COSTS)
  monkeypatch.setattr(cache, 'machine', lambda: {'processor': 'another'})
  with pytest.raises(ValueError, match='another machine'):
    cache.read(file)


@pytest.mark.parametrize(
  ('old', 'new'),
  [
    ('"send": 1e-09', '"send": NaN'),
    ('"send": 1e-09', '"send": -1'),
    ('"send": 1e-09', '"send": "1e-9"'),
    ('"spread": 0.01', '"spread": Infinity'),
    ('"more"', '"less"'),
    ('"codes": {', '"codes": 5, "x": {'),
    ('"machine"', '"engine"'),
    ('{', '['),
    ('{', '[' * 100_000),
    ('{', '\udcff{'),
  ],
)
def test_a_damaged_file_is_refused(file, old, new):
  cache.write(file, COSTS)
  text = file.read_text().replace(old, new, 1)
  file.write_bytes(text.encode('utf-8', 'surrogateescape'))
  with pytest.raises(ValueError):
    cache.read(file)


def test_the_machine_names_its_processor():
  assert cache.machine()['processor'] == processor.name()
  assert json.dumps(cache.machine())
