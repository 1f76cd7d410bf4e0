"""Every module parses, and imports without warnings and output."""

import ast
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ('terngrad', 'slim')
SOURCES = [
  path
  for folder in (*PACKAGES, 'experiments', 'tests')
  for path in sorted((ROOT / folder).rglob('*.py'))
]
MODULES = [
  '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix(
    '.__init__'
  )
  for path in SOURCES
  if path.relative_to(ROOT).parts[0] in PACKAGES
]

# Of typing; setup.py promises Python 3.10.
NEWER_THAN_3_10 = {
  'LiteralString',
  'Never',
  'NotRequired',
  'Required',
  'Self',
  'TypeAliasType',
  'TypeVarTuple',
  'Unpack',
  'assert_never',
  'assert_type',
  'dataclass_transform',
  'override',
  'reveal_type',
}

# Reports all modules that fail, not only the first. A lazy module runs when it
# is asked for something. Each gets an empty set of flags, since two programs
# may define the same one.
IMPORT_ALL = """
import importlib, sys, traceback
from absl import flags
import tensorflow
known = set(flags.FLAGS)
for name in sys.argv[1:]:
  try:
    importlib.import_module(name).__doc__
  except BaseException:
    sys.stdout.write(f'{name}:\\n{traceback.format_exc()}\\n')
  for flag in set(flags.FLAGS) - known:
    delattr(flags.FLAGS, flag)
"""


def run_python(tmp_path, *arguments):
  # 3: TensorFlow's runtime logs when it is imported, and that is not ours.
  environment = os.environ | {'TF_CPP_MIN_LOG_LEVEL': '3'}
  return subprocess.run(
    [sys.executable, *arguments],
    capture_output=True,
    check=False,
    cwd=tmp_path,
    env=environment,
    text=True,
    timeout=300,
  )


def test_sources_compile():
  assert SOURCES
  errors = []
  for path in SOURCES:
    # compile() keeps the result in memory: a gate leaves no files behind.
    try:
      compile(path.read_text(encoding='utf-8'), str(path), 'exec')
    except (SyntaxError, ValueError, Warning) as error:
      errors.append(f'{path.relative_to(ROOT)}: {error}')
  assert errors == []


def names_of_typing(path):
  """Yields what a module imports from typing when it runs."""
  tree = ast.parse(path.read_text(encoding='utf-8'))
  # Skips imports under `if TYPE_CHECKING`.
  for node in tree.body:
    if isinstance(node, ast.ImportFrom) and node.module == 'typing':
      yield from (alias.name for alias in node.names)


def test_names_from_typing_exist_in_the_oldest_python():
  newer = [
    f'{path.relative_to(ROOT)}: {name}'
    for path in SOURCES
    for name in names_of_typing(path)
    if name in NEWER_THAN_3_10
  ]
  assert newer == []


def test_every_module_imports_without_warnings(tmp_path):
  assert MODULES
  result = run_python(tmp_path, '-W', 'error', '-c', IMPORT_ALL, *MODULES)
  assert result.returncode == 0, result.stderr
  assert result.stdout == ''


def test_import_of_terngrad_prints_nothing(tmp_path):
  result = run_python(tmp_path, '-c', 'import terngrad')
  assert (result.returncode, result.stdout, result.stderr) == (0, '', '')
