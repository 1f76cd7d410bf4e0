"""Which codec each variable gets, decided once when the model is built."""

import fnmatch
import math
import operator
import re
from collections.abc import Callable
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import NamedTuple
from typing import TypeVar

if TYPE_CHECKING:
  from typing_extensions import Self

_COMPARISON = re.compile(r'(rank|size)\s*(<=|>=|<|>|=)\s*([0-9]+)')
_OPERATORS = {
  '<': operator.lt,
  '<=': operator.le,
  '=': operator.eq,
  '>=': operator.ge,
  '>': operator.gt,
}


class VariableSpec(NamedTuple):
  """What a policy may know of a trainable variable.

  Attributes:
    name: its path in the model, 'conv1/kernel'.
    shape: tuple of int.
    is_logits: True for the weights and biases of the final classifier.
  """

  name: str
  shape: tuple[int, ...]
  is_logits: bool = False

  @property
  def num_elements(self) -> int:
    """The product of the shape."""
    return math.prod(self.shape)


Predicate = Callable[[VariableSpec], bool]
_C = TypeVar('_C')


class Variables(NamedTuple):
  """Of which variables of a model gradients are.

  Attributes:
    indices: tuple of int, which of all variables; states are known by them.
    specs: tuple of `VariableSpec`.
    plain: frozenset of names of those that travel as float32, whatever the
      codec.
    model: tuple of `VariableSpec` of all variables that `indices` count; names
      are '' where they are not known. () where these are `specs`.
  """

  indices: tuple[int, ...]
  specs: tuple[VariableSpec, ...]
  plain: frozenset[str] = frozenset()
  model: tuple[VariableSpec, ...] = ()

  def only(self, indices: Sequence[int]) -> 'Self':
    """Some of them."""
    return self._replace(
      indices=tuple(self.indices[i] for i in indices),
      specs=tuple(self.specs[i] for i in indices),
    )


def smaller_than(num_elements: int) -> Predicate:
  """A predicate: the variable has fewer than `num_elements` elements."""
  return lambda spec: spec.num_elements < num_elements


def is_logits(spec: VariableSpec) -> bool:
  """A predicate: the variable belongs to the final classifier."""
  return spec.is_logits


def always(spec: VariableSpec) -> bool:
  """A predicate: any variable."""
  return True


def policy(
  rules: Sequence[tuple[Predicate, _C]], specs: Sequence[VariableSpec]
) -> tuple[_C, ...]:
  """Gives every variable the codec of the first rule that holds for it.

  Args:
    rules: sequence of (predicate on `VariableSpec`, codec), most special
      first.
    specs: the variables in the order of the gradients.

  Returns:
    A tuple of codecs, one a variable.

  Raises:
    ValueError: no rule holds for a variable, which is named.
  """
  return tuple(_first(rules, spec) for spec in specs)


def parse(text: str) -> list[tuple[Predicate, str]]:
  """Rules as a command line spells them, 'WHERE -> CODE; WHERE -> CODE'.

  Examples:
    >>> rules = parse('rank<2 -> identity; fc*/kernel & size>=1000 -> fp16')
    >>> print(*(code for _, code in rules))
    identity fp16

  Args:
    text: WHERE is one or more conditions with & between them, which must all
      hold: rank or size (elements) compared with a number by <, <=, =, >= or >;
      or a pattern for the name, with * and ?. Empty for no rules.

  Returns:
    List of (predicate on `VariableSpec`, the text of the code).

  Raises:
    ValueError: a rule has no arrow, no condition or no code.
  """
  found = []
  for rule, where, arrow, code in _arrows(text):
    conditions = [part.strip() for part in where.split('&')]
    if not (arrow and code and all(conditions)):
      raise ValueError(
        "rules: expected 'WHERE -> CODE', such as 'rank<2 -> identity', "
        f'received {rule!r}. Conditions are rank<2, size>=1000 or a pattern '
        "such as '*/bias', with & between them; rules have ; between them."
      )
    found.append((_all_of([_condition(one) for one in conditions]), code))
  return found


def parse_stages(text: str) -> list[tuple[int, str]]:
  """Codes of the first steps of a run, 'UNTIL -> CODE; UNTIL -> CODE'.

  Examples:
    >>> parse_stages('100 -> identity; 300 -> topk:ratio=0.1')
    [(100, 'identity'), (300, 'topk:ratio=0.1')]

  Args:
    text: UNTIL is the number of steps that a code is used before, and rises.

  Returns:
    List of (UNTIL, the text of the code).

  Raises:
    ValueError: a stage has no number, no code or a number that does not rise.
  """
  found: list[tuple[int, str]] = []
  for stage, until, arrow, code in _arrows(text):
    last = found[-1][0] if found else 0
    if not (arrow and code and until.isdecimal() and int(until) > last):
      raise ValueError(
        "warm-up: expected 'UNTIL -> CODE' with a number of steps above "
        f"{last}, such as '{last + 100} -> identity', received {stage!r}."
      )
    found.append((int(until), code))
  return found


def _arrows(text: str) -> list[tuple[str, ...]]:
  """For each part of a text between ; (itself, left of ->, ->, right of it)."""
  parts = filter(None, (part.strip() for part in text.split(';')))
  return [
    (part, *(side.strip() for side in part.partition('->'))) for part in parts
  ]


def _all_of(conditions: Sequence[Predicate]) -> Predicate:
  return lambda spec: all(holds(spec) for holds in conditions)


def _condition(text: str) -> Predicate:
  match = _COMPARISON.fullmatch(text)
  if not match:
    if re.search('[<>=]', text):
      raise ValueError(
        'rules: expected rank or size to be compared with a whole number, '
        f'received {text!r}. Write size>=1000.'
      )
    return lambda spec: fnmatch.fnmatchcase(spec.name, text)
  kind, compare, number = match.groups()

  def holds(spec: VariableSpec) -> bool:
    value = len(spec.shape) if kind == 'rank' else spec.num_elements
    return _OPERATORS[compare](value, int(number))

  return holds


def _first(rules: Sequence[tuple[Predicate, _C]], spec: VariableSpec) -> _C:
  for holds, codec in rules:
    if holds(spec):
      return codec
  raise ValueError(
    f'policy: expected a rule that holds for every variable, received none for '
    f'{spec.name} {spec.shape}. End the rules with (always, codec).'
  )
