"""For Keras's own tests: every optimizer that they make is compressed.

`-p tests.keras.wrapped` puts `CompressedOptimizer` with the codec that changes
no bit around each optimizer that a test makes by its class or by a name. What
Keras itself reads from files stays its own.
"""

import functools
import sys

from keras.src import optimizers

import terngrad.keras

CODEC = 'identity'
# They go around others.
_OUTER = (optimizers.LossScaleOptimizer, optimizers.MultiOptimizer)


def _stand_in(stock):
  """A class whose objects are `stock`'s with the wrapper."""

  def __new__(cls, *args, **kwargs):
    if cls is not stand_in:
      return super(stand_in, cls).__new__(cls, *args, **kwargs)
    return terngrad.keras.CompressedOptimizer(stock(*args, **kwargs), CODEC)

  stand_in = type(stock.__name__, (stock,), {'__new__': __new__})
  return stand_in


def _wrapping(get):
  """`keras.optimizers.get` for models that are compiled."""

  @functools.wraps(get)
  def wrapping(identifier):
    found = get(identifier)
    if found is identifier or isinstance(found, _OUTER):
      return found
    return terngrad.keras.CompressedOptimizer(found, CODEC)

  return wrapping


def _wrap():
  modules = [m for n, m in sys.modules.items() if n.startswith('keras')]
  for stock in optimizers.ALL_OBJECTS - {*_OUTER, optimizers.Optimizer}:
    if not issubclass(stock, optimizers.Optimizer):
      continue
    stand_in = _stand_in(stock)
    for module in modules:
      if vars(module).get(stock.__name__) is stock:
        setattr(module, stock.__name__, stand_in)
  optimizers.get = _wrapping(optimizers.get)


_wrap()
