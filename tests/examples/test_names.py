"""Examples that need a package that is missing name what exists."""

import ast
import pathlib

import terngrad

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'examples'


def test_the_example_of_pytorch_calls_methods_that_exist():
  tree = ast.parse((FOLDER / 'local_steps_torch.py').read_text())
  called = {
    node.attr
    for node in ast.walk(tree)
    if isinstance(node, ast.Attribute)
    and isinstance(node.value, ast.Name)
    and node.value.id == 'steps'
  }
  assert {'start', 'exchange', 'complete'} <= called
  assert called <= {*dir(terngrad.LocalSteps(every=1))}
