"""Limits on the sizes of functions, modules and kernels' sources.

`test_layers` limits the number of modules in a folder.
"""

import ast
import pathlib
import statistics

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
LONGEST_FUNCTION = 60
LONGEST_NATIVE_SOURCE = 399
LARGEST_MEDIAN = 119
# A net is one table of its layers.
TABLES = ('slim/nets/',)

MODULES = [
  path
  for folder in ('terngrad', 'slim', 'experiments')
  for path in sorted((ROOT / folder).rglob('*.py'))
]


def name_of(path):
  return path.relative_to(ROOT).as_posix()


def longer_functions(name, source):
  """{'module:function': lines} of those over the limit, docstrings included."""
  return {
    f'{name}:{node.name}': node.end_lineno - node.lineno + 1
    for node in ast.walk(ast.parse(source))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    and node.end_lineno - node.lineno >= LONGEST_FUNCTION
  }


def test_functions_are_short():
  assert MODULES
  found = {}
  for path in MODULES:
    if not name_of(path).startswith(TABLES):
      source = path.read_text(encoding='utf-8')
      found |= longer_functions(name_of(path), source)
  assert found == {}


def test_half_of_the_modules_are_short():
  lengths = [
    len(path.read_text(encoding='utf-8').splitlines())
    for path in MODULES
    if path.name != '__init__.py'
  ]
  assert statistics.median(lengths) <= LARGEST_MEDIAN


def test_native_sources_are_short():
  lengths = {
    name_of(path): len(path.read_text(encoding='utf-8').splitlines())
    for path in (ROOT / 'terngrad/native/src').rglob('*.*')
  }
  assert lengths
  assert {k: n for k, n in lengths.items() if n > LONGEST_NATIVE_SOURCE} == {}


@pytest.mark.parametrize(('lines', 'is_longer'), [(60, False), (61, True)])
def test_a_longer_function_is_found(lines, is_longer):
  body = '  pass\n' * (lines - 1)
  assert bool(longer_functions('m', f'def f():\n{body}')) == is_longer
  inner = f'class A:\n  @x\n  async def f():\n{body.replace("  ", "    ")}'
  assert bool(longer_functions('m', inner)) == is_longer
