"""Functions are traced and compiled as they are written, in one place."""

import ast
import pathlib

import pytest
import tensorflow as tf

from terngrad.codec.stages import tracing

ROOT = pathlib.Path(tracing.__file__).resolve().parents[2]


def uses(path):
  """Lines of a module that use `tf.function`."""
  tree = ast.parse(path.read_text(encoding='utf-8'))
  return [
    f'{path.relative_to(ROOT)}:{node.lineno}'
    for node in ast.walk(tree)
    if isinstance(node, ast.Attribute) and ast.unparse(node) == 'tf.function'
  ]


def test_every_function_is_traced_by_this_module():
  found = [line for path in ROOT.rglob('*.py') for line in uses(path)]
  assert {line.partition(':')[0] for line in found} == {
    'codec/stages/tracing.py'
  }


@pytest.mark.parametrize('make', [tracing.function, tracing.compiled])
def test_functions_are_not_rewritten(make):
  @make
  def choose(value):
    return value if value > 0 else -value

  with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
    choose(tf.constant(1.0))


def test_options_of_tensorflow_are_passed_on():
  @tracing.function(reduce_retracing=True)
  def add(value):
    return value + 1.0

  for size in range(1, 5):
    assert add(tf.zeros([size])).numpy().tolist() == [1.0] * size
  assert add.experimental_get_tracing_count() == 2
