"""Only `terngrad.reduce` lets methods work, read from the sources."""

import ast
import pathlib

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_VERBS = {'begin', 'carry', 'send', 'decode', 'estimate', 'finish'}
# What has verbs of the same names.
_OTHERS = {
  'terngrad/compression/compressor.py reducer.begin',
  'terngrad/measure/quality.py payloads.decode',
  'terngrad/measure/quality.py payloads.send',
  'terngrad/parameter_server/async_step.py self._reducer.begin',
  'terngrad/parameter_server/server_tasks.py feeder.begin',
  'terngrad/step/step.py self._reducer.begin',
  'terngrad/tracking/wandb_tracker.py self._run.finish',
}
# Methods call those that they wrap; kernels have names of their own. Claims and
# timers take the steps of a method one by one; nothing trains by them.
_MAY = (
  'terngrad/reduce/',
  'terngrad/codec/',
  'terngrad/conformance/',
  'terngrad/measure/codecs.py',
  'terngrad/measure/payloads.py',
  'terngrad/measure/variance.py',
)


def calls_of_verbs(path):
  """Yields (line, text) of the calls of a method's verbs in a module."""
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if not isinstance(node, ast.Call):
      continue
    function = node.func
    if isinstance(function, ast.Subscript):
      function = function.value
    if isinstance(function, ast.Attribute) and function.attr in _VERBS:
      # Of bytes, whose decode takes the name of an encoding or nothing.
      is_text = function.attr == 'decode' and (
        len(node.args) < 2
        or all(isinstance(argument, ast.Constant) for argument in node.args)
      )
      if not is_text:
        yield node.lineno, ast.unparse(function)


def test_only_reduce_calls_the_steps_of_methods():
  found = set()
  for path in sorted((_ROOT / 'terngrad').rglob('*.py')):
    name = path.relative_to(_ROOT).as_posix()
    if not name.startswith(_MAY):
      found |= {f'{name} {text}' for _, text in calls_of_verbs(path)}
  assert found == _OTHERS
