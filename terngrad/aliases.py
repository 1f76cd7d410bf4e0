"""Deprecated names, which work for one release with a warning."""

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any
from typing import ParamSpec
from typing import TypeVar

_P = ParamSpec('_P')
_R = TypeVar('_R')
_T = TypeVar('_T')


def renamed_arguments(
  **names: str,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
  """Makes a function accept the argument names of 0.2, until 0.4.

  Examples:
    >>> @renamed_arguments(colour='color')
    ... def paint(color):
    ...   return color
    >>> paint(color='red')
    'red'

  Args:
    **names: the current name by each old name.

  Returns:
    A decorator. The decorated function emits a DeprecationWarning for an old
    name, and raises TypeError if a call has both names.
  """

  def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
    called = function.__qualname__.removesuffix('.__init__')
    called = called.removesuffix('.__new__')

    @functools.wraps(function)
    def renamed(*values: _P.args, **named: _P.kwargs) -> _R:
      for old in [name for name in names if name in named]:
        new = names[old]
        if new in named:
          raise TypeError(
            f'{called}: expected {new}, received both it and {old}, its name '
            f'until terngrad 0.2. Leave {old} out.'
          )
        warnings.warn(
          f'{called}: the argument {old} is an old name, to be removed in '
          f'terngrad 0.4. Use {new}.',
          DeprecationWarning,
          stacklevel=2,
        )
        named[new] = named.pop(old)
      return function(*values, **named)

    return renamed

  return decorate


def renamed_names(module: str, **names: str) -> Callable[[str], Any]:
  """Returns a module's `__getattr__` that accepts the names of 0.2, until 0.4.

  Args:
    module: name of the module.
    **names: the current name by each old name.
  """

  def find(name: str) -> Any:
    if name not in names:
      raise AttributeError(f'module {module!r} has no attribute {name!r}')
    warn(module, name, names[name])
    return getattr(sys.modules[module], names[name])

  return find


def renamed_attribute(old: str, new: str) -> Any:
  """Returns a property `old` of a class: its attribute `new`, until 0.4."""

  def read(owner: Any) -> Any:
    warn(type(owner).__name__, old, new)
    return getattr(owner, new)

  return property(read, doc=f'Deprecated: use {new}.')


def warn(owner: str, old: str, new: str) -> None:
  """Emits the warning for an old name, at the caller of the caller.

  Args:
    owner: name of the module or class.
    old: its old name.
    new: its current name.
  """
  warnings.warn(
    f'{owner}.{old} is an old name, to be removed in terngrad 0.4. Use {new}.',
    DeprecationWarning,
    stacklevel=3,
  )


def renamed_attributes(**names: str) -> Callable[[type[_T]], type[_T]]:
  """Makes a NamedTuple accept the field names of 0.2, until 0.4.

  Args:
    **names: the current name by each old name.

  Returns:
    A decorator. An old name emits a DeprecationWarning as an attribute, as an
    argument of the class and as an argument of `_replace`.
  """

  def decorate(kind: type[_T]) -> type[_T]:
    for method in ('__new__', '_replace'):
      function = getattr(kind, method)
      function.__qualname__ = f'{kind.__name__}.{method}'
      setattr(kind, method, renamed_arguments(**names)(function))
    for old, new in names.items():
      setattr(kind, old, renamed_attribute(old, new))
    return kind

  return decorate
