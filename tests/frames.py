"""Which functions of ours a gradient passes on its way to a native kernel.

  python -m tests.frames

Takes a step of each route: fit (Keras's, one replica), virtual (workers of one
device), towers and servers. Prints one line per function, outermost first, on
the route to encode and on the route to decode: route, direction, path, name,
lines. Comprehensions do not count as functions. Programs run eagerly, so that
no route hides in the trace of another one, and nothing is compiled.
"""

import functools
import inspect
import pathlib
import sys

import tensorflow as tf

from tests import eager

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PRODUCT = str(_ROOT / 'terngrad')
_COMPREHENSIONS = '<listcomp>', '<setcomp>', '<dictcomp>', '<genexpr>'
ENCODE, DECODE = 'encode', 'decode'
# Functions of `terngrad.native.ops` that make an operation.
_KERNELS = {
  ENCODE: ('EncodeOptions.encode',),
  DECODE: (
    'Digits.decode_sum',
    'scale_sums',
    'fused_update',
    'fused_update_of_sums',
  ),
}


def route_to(function):
  """[(path, name, lines)] of the callers, outermost first, and the function."""
  code, frame, found = function.__code__, sys._getframe(2), []
  codes = [code]
  while frame is not None:
    codes.append(frame.f_code)
    frame = frame.f_back
  for code in codes:
    if code.co_filename.startswith(_PRODUCT):
      if code.co_name not in _COMPREHENSIONS:
        found.append((code.co_filename, code.co_name, length(code)))
  return found[::-1]


def length(code):
  """Returns the number of lines of a function, without its docstring."""
  lines, _ = inspect.getsourcelines(code)
  docstring = next(iter(code.co_consts), None)
  is_docstring = isinstance(docstring, str) and '"""' in ''.join(lines)
  return len(lines) - (docstring.count('\n') + 1 if is_docstring else 0)


class Routes(dict):
  """The longest route to each kind of kernel, noted while it is called."""

  def __init__(self):
    super().__init__()
    self._originals = []

  def __enter__(self):
    from terngrad.native import ops

    for kind, names in _KERNELS.items():
      for name in names:
        *owners, function = name.split('.')
        owner = functools.reduce(getattr, owners, ops)
        original = getattr(owner, function)
        self._originals.append((owner, function, original))
        setattr(owner, function, self._noting(kind, original))
    return self

  def __exit__(self, *error):
    for owner, function, original in self._originals:
      setattr(owner, function, original)

  def _noting(self, kind, function):
    @functools.wraps(function)
    def noting(*arguments, **options):
      found = route_to(function)
      # The trial of a kernel, before the first step, is no step.
      if all(name != 'kernel_roundings' for _, name, _ in found):
        self[kind] = max(self.get(kind, []), found, key=len)
      return function(*arguments, **options)

    return noting


def fit():
  """A step of Keras's `fit` with `CompressedOptimizer`."""
  from terngrad import keras as compressed

  model = _model()
  optimizer = compressed.CompressedOptimizer('sgd', 'ternary')
  model.compile(optimizer, 'mse')
  model.fit(tf.zeros([8, 16]), tf.zeros([8, 4]), verbose=0)


def virtual():
  """A step of `fit` with virtual workers."""
  from terngrad import keras as compressed

  model = _model()
  model.compile('sgd', 'mse')
  compressed.virtual_workers(model, 'ternary', num_workers=2)
  model.fit(tf.zeros([8, 16]), tf.zeros([8, 4]), verbose=0)


def towers():
  """A step on towers, several workers on a device."""
  _take(None)


def servers():
  """The same over parameter servers."""
  from terngrad.exchange import server
  from terngrad.exchange import towers as towers_lib
  from tests.step import small

  names = tuple(f'/CPU:{i}' for i in range(2))
  feed = server.LocalBatch(*small.batch_of(1, [2, 2]))
  _take(server.Servers(towers_lib.Towers(names, 4), ('/CPU:2',), 2, [feed]))


def _take(exchange):
  from terngrad.step import step as steps
  from tests.step import small

  built = small.Training(
    small.dense_net,
    devices=2,
    workers=4,
    codec='ternary',
    exchange=exchange,
    on_kernels=True,
  )
  training = steps.Training(
    built.node_pass,
    built.exchange,
    built.replicas,
    built.states,
    built.optimizer,
    seed=11,
  )
  numbers = tf.constant(0, tf.int64), tf.constant(0.1), tf.constant(0.5)
  step = steps.TrainStep(training, built.codec)
  step.take(*small.batch_of(0, [2, 2] if exchange else [4, 2]), *numbers)


def _model():
  import keras

  return keras.Sequential([keras.Input((16,)), keras.layers.Dense(4)])


def find_routes():
  """Takes a step of each route on four CPU devices.

  Returns:
    {(route, direction): [(path below the repository, name, lines)]}.
  """
  found = {}
  with eager.functions(), Routes() as routes:
    for take in (fit, virtual, towers, servers):
      routes.clear()
      take()
      for kind, route in routes.items():
        found[take.__name__, kind] = [
          (str(pathlib.Path(path).relative_to(_ROOT)), name, lines)
          for path, name, lines in route
        ]
  return found


def main():
  """Prints all routes."""
  tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices('CPU')[0],
    [tf.config.LogicalDeviceConfiguration()] * 4,
  )
  for (route, direction), functions in find_routes().items():
    for path, name, lines in functions:
      sys.stdout.write(f'{route} {direction} {path} {name} {lines}\n')


if __name__ == '__main__':
  main()
