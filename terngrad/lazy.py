"""Modules that are imported at their first use.

Printing `--help` or reporting an unknown flag needs no TensorFlow, whose import
takes seconds. So the modules of `config` and `cli` import modules that load
TensorFlow by `module`.
"""

import importlib.util
import sys
import types


def module(name: str) -> types.ModuleType:
  """Imports a module lazily: its code runs when an attribute is first read.

  Args:
    name: dotted name of a module. Its package is imported at once.

  Returns:
    The module.

  Raises:
    ModuleNotFoundError: no module has this name.

  References:
    "Implementing lazy imports",
    https://docs.python.org/3/library/importlib.html
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
  # Imports set this attribute too, for `from package import name`.
  package, _, last = name.rpartition('.')
  if package:
    setattr(sys.modules[package], last, lazy)
  return lazy
