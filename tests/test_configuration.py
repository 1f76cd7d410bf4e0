"""Which modules take the whole configuration, read from the sources.

Programs, flags and the configurations themselves know all options. In the
library below them, few modules take the whole configuration: those that
assemble a run and those that compare two runs. All other modules take only the
options that they use.
"""

import ast
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What launches programs has another configuration, of hosts.
ABOVE = {'bin', 'cli', 'config', 'launching'}
MOST_MODULES = 8
WHOLE = {
  # They put a run together, begin it, or go through its steps.
  'terngrad/training/assembly.py',
  'terngrad/training/loop.py',
  'terngrad/training/start.py',
  'terngrad/training/evaluation.py',
  'terngrad/parameter_server/server_run.py',
  'terngrad/parameter_server/server_tasks.py',
  'terngrad/report/worker_gradients.py',
  'terngrad/measure/step_table.py',
}


def takes_configuration(source):
  """Whether a function has a parameter that is a whole configuration."""
  found = (
    argument
    for node in ast.walk(ast.parse(source))
    if isinstance(node, ast.arguments)
    for argument in (*node.posonlyargs, *node.args, *node.kwonlyargs)
  )
  return any(
    argument.arg == 'config' or 'Config' in _annotation(argument)
    for argument in found
  )


def _annotation(argument):
  return ast.unparse(argument.annotation) if argument.annotation else ''


def modules_below():
  """Returns {path: source} of the library, without programs and flags."""
  paths = {
    path.relative_to(ROOT): path for path in (ROOT / 'terngrad').rglob('*.py')
  }
  return {
    name.as_posix(): path.read_text(encoding='utf-8')
    for name, path in paths.items()
    if name.parts[1] not in ABOVE
  }


def test_few_modules_take_the_whole_configuration():
  found = {
    name
    for name, source in modules_below().items()
    # Parses only sources that can have one.
    if 'onfig' in source and takes_configuration(source)
  }
  assert found == WHOLE
  assert len(found) <= MOST_MODULES


def test_config_parameters_are_found_in_any_position():
  for source in (
    'def f(config): ...',
    'class C:\n  def f(self, *, config=None): ...',
    'f = lambda step, config: step',
    'def f(whole: configs.TrainConfig): ...',
  ):
    assert takes_configuration(source)
  assert not takes_configuration('def f(options, step): config = options')
