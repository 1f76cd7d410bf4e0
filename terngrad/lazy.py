"""Modules that are imported when they are first used.

What a program says of itself (`--help`, a wrong flag) needs no TensorFlow,
whose import takes seconds. So the modules of `config` and `cli` name what loads
it by `module`.
"""

import importlib.util
import sys
import types


def module(name: str) -> types.ModuleType:
  """A module whose code runs when one of its names is first asked for.

  Args:
    name: dotted, of a module that exists. Its package is imported at once.

  Returns:
    The module.

  Raises:
    ModuleNotFoundError: there is none of this name.

  References:
    "Implementing lazy imports", https://docs.python.org/3/library/importlib.html
  """
  if name in sys.modules:
    return sys.modules[name]
  spec = importlib.util.find_spec(name)
  if spec is None or spec.loader is None:
    raise ModuleNotFoundError(f'No module named {name!r}', name=name)
  spec.loader = importlib.util.LazyLoader(spec.loader)
  lazy = importlib.util.module_from_spec(spec)
  sys.modules[name] = lazy
  spec.loader.exec_module(lazy)
  # As an import does, for `from package import name`.
  package, _, last = name.rpartition('.')
  if package:
    setattr(sys.modules[package], last, lazy)
  return lazy
