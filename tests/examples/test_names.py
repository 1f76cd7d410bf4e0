"""Examples that need a package that is missing name what exists."""

import ast
import pathlib

import pytest

import terngrad

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'examples'


@pytest.mark.parametrize(
  ('path', 'name', 'kind'),
  [('local_steps_torch.py', 'steps', terngrad.LocalSteps)],
)
def test_an_example_calls_methods_that_exist(path, name, kind):
  tree = ast.parse((FOLDER / path).read_text())
  called = {
    node.attr
    for node in ast.walk(tree)
    if isinstance(node, ast.Attribute)
    and isinstance(node.value, ast.Name)
    and node.value.id == name
  }
  made = kind(every=1)
  assert {'start', 'exchange', 'complete'} <= called
  assert [
    attribute for attribute in called if not hasattr(made, attribute)
  ] == []
