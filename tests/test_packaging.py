"""What is installed is what is in the tree."""

import ast
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
import setuptools

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ('terngrad', 'slim')


def test_every_folder_of_modules_is_a_package():
  # A folder without __init__.py works from the tree and is missing in a wheel.
  folders = {
    '.'.join(path.parent.relative_to(ROOT).parts)
    for package in PACKAGES
    for path in (ROOT / package).rglob('*.py')
  }
  include = [pattern for p in PACKAGES for pattern in (p, f'{p}.*')]
  found = setuptools.find_packages(str(ROOT), include=include)
  assert folders == set(found)


def test_programs_of_setup_py_exist():
  tree = ast.parse((ROOT / 'setup.py').read_text(encoding='utf-8'))
  programs = next(
    ast.literal_eval(node.value)
    for node in tree.body
    if isinstance(node, ast.Assign) and node.targets[0].id == 'PROGRAMS'
  )
  for entry in programs.values():
    module, function = entry.split(':')
    source = (
      (ROOT / module.replace('.', '/'))
      .with_suffix('.py')
      .read_text(encoding='utf-8')
    )
    names = [
      node.name
      for node in ast.parse(source).body
      if isinstance(node, ast.FunctionDef)
    ]
    assert function in names, entry


@pytest.mark.slow
def test_wheel_holds_every_module(tmp_path):
  # A copy, because setuptools leaves build/ beside setup.py.
  tree = tmp_path / 'tree'
  ignore = shutil.ignore_patterns('.*', '__pycache__', 'quickstart', 'build')
  shutil.copytree(ROOT, tree, ignore=ignore)
  subprocess.run(
    [sys.executable, '-m', 'pip', 'wheel', '-qq', '--no-deps']
    + ['--no-build-isolation', '--wheel-dir', str(tmp_path), str(tree)],
    check=True,
    timeout=300,
  )
  (wheel,) = tmp_path.glob('*.whl')
  expected = {
    path.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package).rglob('*.py')
  }
  held = {n for n in zipfile.ZipFile(wheel).namelist() if n.endswith('.py')}
  assert held == expected
