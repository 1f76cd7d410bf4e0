"""Compatibility with 0.2 until 0.4, with a DeprecationWarning.

In 0.2, methods, codes, packings, quantizers and clips were tuples of functions.
Their classes still accept functions by position or by name, as in
`Packing(name='p', pack=f)`.
"""

import abc
import copy
import importlib
import inspect
import warnings
from collections.abc import Callable
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
  from typing_extensions import Self

# The parameters of 0.2, in order; those before the bar are required. A class
# that is both a code and a packing counts as a code.
_FIELDS = {
  'Code': 'name probe encode_pieces decode_sum num_words traits stages | '
  'decode_sums digits unit compiled group_size scope requantizes agrees native',
  'Method': 'name traits begin messages send decode | estimate finish states '
  'scope carry carry_words num_probes draws_in_decode strata max_workers '
  'telling agrees digits unit compiled on_kernels on_gpus in_float',
  'Clip': 'name limit | clip_factor domain',
  'Quantizer': 'name scaler factor quantize dequantize levels traits | clips '
  'strata domain',
  'Packing': 'name elements_per_word pack unpack domain | levels traits '
  'word_bits digits max_workers fill',
  'VariablePacking': 'name elements_per_word pack unpack capacity used '
  'expected check | levels domain traits max_workers fill',
  'CompositePacking': 'name num_words planes check | levels domain max_workers',
}
_RENAMED = {
  'requantizes': 'carries',
  'native': 'twin',
  'telling': 'estimated_round',
}
# The declaration that replaces the presence of an optional function.
_DECLARATIONS = {
  'estimate': 'estimates',
  'finish': 'finishes',
  'carry': 'carries',
  'decode_sums': 'summable',
}
# Optional functions, which were None in 0.2 if missing.
_OPTIONAL = (
  *_DECLARATIONS,
  'carry_words',
  'twin',
  'on_kernels',
  'on_gpus',
  'in_float',
)


class AcceptsFunctions(abc.ABC):  # noqa: B024
  """A base class whose subclasses accept functions, as in 0.2."""

  def __new__(cls, *values: Any, **named: Any) -> 'Self':
    """Accepts the arguments of 0.2; subclasses may define other parameters."""
    if not (values or named) or cls.__init__ is not object.__init__:
      return super().__new__(cls)
    if _base(cls) is not cls:
      raise TypeError(f'{cls.__name__} takes no arguments.')
    arguments = _bind(cls.__name__, values, named)
    _warn(cls)
    return super().__new__(_make_subclass(cls, _members(cls, arguments)))

  def _replace(self, **changes: Any) -> 'Self':
    """Returns a copy with other functions or values, as a tuple of 0.2 did.

    Replaced values are set on the copy, which keeps its kernels, because
    kernels read these values. Replaced functions create a subclass, which has
    no kernels.
    """
    kind = type(self)
    base = _base(kind) or kind
    unknown = changes.keys() - set(_FIELDS[base.__name__].split())
    if unknown:
      raise ValueError(f'Got unexpected field names: {sorted(unknown)!r}')
    members = _members(base, changes)
    functions = {
      name: value
      for name, value in members.items()
      if callable(value)
      or isinstance(inspect.getattr_static(kind, name, None), property)
    }
    _warn(kind)
    other = copy.copy(self)
    vars(other).update(members)
    if functions:
      other.__class__ = _make_subclass(kind, functions)
    for name in functions:
      del vars(other)[name]
    return other


def _base(kind: type) -> type | None:
  """Returns the class of `kind` that was a tuple in 0.2, or None."""
  classes = {
    one.__name__: one
    for one in kind.__mro__
    if one.__module__.startswith('terngrad.codec.')
  }
  return next((classes[name] for name in _FIELDS if name in classes), None)


def _bind(
  kind: str, values: Sequence[Any], named: dict[str, Any]
) -> dict[str, Any]:
  """Returns arguments by name; TypeError for those 0.2 did not accept."""
  required, _, optional = _FIELDS[kind].partition('|')
  parameter_kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
  signature = inspect.Signature(
    [inspect.Parameter(name, parameter_kind) for name in required.split()]
    + [
      inspect.Parameter(name, parameter_kind, default=None)
      for name in optional.split()
    ]
  )
  try:
    return signature.bind(*values, **named).arguments
  except TypeError as error:
    raise TypeError(f'{kind}: {error}.') from None


def _warn(kind: type) -> None:
  warnings.warn(
    f'{kind.__name__} of functions will be removed in terngrad 0.4: write a '
    f'subclass of {kind.__module__}.{kind.__name__} with methods of the same '
    'names, see docs/add_a_codec.md.',
    DeprecationWarning,
    stacklevel=3,
  )


def _make_subclass(kind: type, members: dict[str, Any]) -> type:
  """Creates a subclass with these functions and values."""
  return type(kind.__name__, (kind,), members | {'__module__': kind.__module__})


def _members(base: type, arguments: dict[str, Any]) -> dict[str, Any]:
  """Converts arguments of 0.2 to members of a subclass of `base`."""
  return {
    # A missing function is inherited.
    name: getattr(base, name)
    if value is None and name in _OPTIONAL
    else staticmethod(value)
    if callable(value)
    else value
    for name, value in _rename_arguments(arguments).items()
  }


def _rename_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
  """Renames arguments of 0.2 to the members of today's classes."""
  found = {_RENAMED.get(name, name): value for name, value in arguments.items()}
  found |= {
    _DECLARATIONS[name]: arguments[name] is not None
    for name in arguments.keys() & _DECLARATIONS.keys()
  }
  if 'send' in arguments:
    rounds = arguments['send']
    found['send'] = lambda number, *arguments: rounds[number](*arguments)
    found['num_rounds'] = len(rounds)
  if arguments.get('in_float'):
    found['in_float'] = lambda plain: arguments['in_float']()
  if arguments.get('stages'):
    found['max_workers'] = arguments['stages'][-1].max_workers
    found['strata'] = max(getattr(s, 'strata', 0) for s in arguments['stages'])
  return found


def moved(module: str, **names: str) -> Callable[[str], Any]:
  """Returns a module's `__getattr__` that forwards names to other modules.

  Args:
    module: name of the module.
    **names: old name and the new 'module:name'.
  """

  def find(name: str) -> Any:
    if name not in names:
      raise AttributeError(f'module {module!r} has no attribute {name!r}')
    home, _, target = names[name].partition(':')
    warnings.warn(
      f'{module}.{name} will be removed in terngrad 0.4: use {home}.{target}.',
      DeprecationWarning,
      stacklevel=2,
    )
    return getattr(importlib.import_module(home), target)

  return find
