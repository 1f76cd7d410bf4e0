"""Modules that are run when they are first used."""

import importlib
import sys

import pytest

from terngrad import lazy


@pytest.fixture
def package(tmp_path, monkeypatch):
  """Name of a package whose module `inner` says when it is run."""
  name = 'package_of_test_lazy'
  (tmp_path / name).mkdir()
  (tmp_path / name / '__init__.py').write_text('runs = []\n')
  (tmp_path / name / 'inner.py').write_text(
    f'import {name} as package\npackage.runs.append(__name__)\nvalue = 3\n'
  )
  monkeypatch.syspath_prepend(tmp_path)
  yield name
  for module in [name, f'{name}.inner']:
    sys.modules.pop(module, None)


def test_a_module_is_run_when_it_is_first_used_and_once(package):
  inner = lazy.module(f'{package}.inner')
  runs = sys.modules[package].runs
  assert runs == []
  assert (inner.value, inner.value) == (3, 3)
  assert runs == [f'{package}.inner']


def test_the_lazy_module_equals_the_imported_one(package):
  inner = lazy.module(f'{package}.inner')
  assert lazy.module(f'{package}.inner') is inner
  assert importlib.import_module(f'{package}.inner') is inner
  assert sys.modules[package].inner is inner
  inner.value = 4
  assert importlib.import_module(f'{package}.inner').value == 4
  assert sys.modules[package].runs == [f'{package}.inner']


def test_a_module_imported_before_is_used(package):
  inner = importlib.import_module(f'{package}.inner')
  assert lazy.module(f'{package}.inner') is inner


@pytest.mark.parametrize('name', ['{}.absent', '{}_absent', '{}_absent.inner'])
def test_a_module_that_does_not_exist_is_refused_at_once(package, name):
  with pytest.raises(ModuleNotFoundError, match='No module named') as caught:
    lazy.module(name.format(package))
  assert caught.value.name in name.format(package)


def test_a_folder_without_modules_is_refused(package, tmp_path):
  (tmp_path / f'{package}_folder').mkdir()
  importlib.invalidate_caches()
  with pytest.raises(ModuleNotFoundError, match='No module named'):
    lazy.module(f'{package}_folder')
