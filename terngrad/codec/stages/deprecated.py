"""What 0.2 made of functions runs until 0.4, with a DeprecationWarning.

Methods, codes, packings, quantizers and clips were tuples of functions. Their
classes still take those by position or by name, as `Packing(name='p', pack=f)`.
"""

import abc
import copy
import importlib
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
  from typing_extensions import Self

# The parameters of 0.2, in their order.
_FIELDS = {
  'Clip': 'name limit clip_factor domain',
  'Quantizer': 'name scaler factor quantize dequantize levels traits clips '
  'strata domain',
  'Packing': 'name elements_per_word pack unpack domain levels traits '
  'word_bits digits max_workers fill',
  'VariablePacking': 'name elements_per_word pack unpack capacity used '
  'expected check levels domain traits max_workers fill',
  'CompositePacking': 'name num_words planes check levels domain max_workers',
  'Code': 'name probe encode_pieces decode_sum num_words traits stages '
  'decode_sums digits unit compiled group_size scope requantizes agrees native',
  'Method': 'name traits begin messages send decode estimate finish states '
  'scope carry carry_words num_probes draws_in_decode strata max_workers '
  'telling agrees digits unit compiled on_kernels on_gpus in_float',
}
# What says whether a function that need not be there is.
_IS_THERE = {
  'estimate': 'estimates',
  'finish': 'finishes',
  'carry': 'carries',
  'decode_sums': 'summable',
}
# Functions that need not be there; None of 0.2.
_OPTIONAL = (
  *_IS_THERE,
  'carry_words',
  'twin',
  'on_kernels',
  'on_gpus',
  'in_float',
)


class OfFunctions(abc.ABC):  # noqa: B024
  """A class that 0.2 made instances of from functions."""

  def __new__(cls, *values: Any, **named: Any) -> 'Self':
    """Takes what 0.2 took; subclasses have parameters of their own."""
    if not (values or named) or cls.__init__ is not object.__init__:
      return super().__new__(cls)
    if cls.__module__.partition('.')[0] != 'terngrad':
      raise TypeError(f'{cls.__name__} takes no arguments.')
    fields = _FIELDS[cls.__name__].split()
    made = _of_functions(cls, dict(zip(fields, values, strict=False)) | named)
    return super().__new__(made)

  def _replace(self, **changes: Any) -> 'Self':
    """A copy with other functions or values, as a tuple of 0.2 made it."""
    other = copy.copy(self)
    # Kernels compute what the class of a stage says and not this one.
    other.__class__ = kind = _of_functions(type(self), changes)
    for name in vars(kind).keys() & vars(self).keys():
      delattr(other, name)
    return other


def _of_functions(kind: type, given: dict[str, Any]) -> type:
  """A subclass with these functions and values."""
  warnings.warn(
    f'{kind.__name__} of functions goes in terngrad 0.4: write a subclass of '
    f'{kind.__module__}.{kind.__name__} with methods of those names, see '
    'docs/add_a_codec.md.',
    DeprecationWarning,
    stacklevel=3,
  )
  members = {
    name: staticmethod(value) if callable(value) else value
    for name, value in _translated(given).items()
  }
  return type(kind.__name__, (kind,), members)


def _translated(given: dict[str, Any]) -> dict[str, Any]:
  """Members of a class for what 0.2 called them."""
  found = dict(given)
  for name, says in _IS_THERE.items():
    if name in given:
      found[says] = given[name] is not None
  for name, new in (('requantizes', 'carries'), ('native', 'twin')):
    if name in given:
      found[new] = found.pop(name)
  if 'send' in given:
    found['send'] = _of_rounds(given['send'])
    found['num_rounds'] = len(given['send'])
  if given.get('in_float'):
    found['in_float'] = lambda plain: given['in_float']()
  if 'stages' in given:
    strata = [getattr(stage, 'strata', 0) for stage in given['stages']]
    found['max_workers'] = given['stages'][-1].max_workers
    found['strata'] = max(strata)
  gone = [name for name in _OPTIONAL if found.get(name, found) is None]
  return {name: found[name] for name in found.keys() - gone}


def _of_rounds(functions: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
  """`Method.send` of a function a round."""

  def send(number: int, *arguments: Any) -> Any:
    return functions[number](*arguments)

  return send


def moved(module: str, **names: str) -> Callable[[str], Any]:
  """The `__getattr__` of a module some of whose names are elsewhere now.

  Args:
    module: its name.
    **names: of what was in it, and 'module:name' of what is in its place.
  """

  def find(name: str) -> Any:
    if name not in names:
      raise AttributeError(f'module {module!r} has no attribute {name!r}')
    home, _, there = names[name].partition(':')
    warnings.warn(
      f'{module}.{name} goes in terngrad 0.4: use {home}.{there}.',
      DeprecationWarning,
      stacklevel=2,
    )
    return getattr(importlib.import_module(home), there)

  return find
