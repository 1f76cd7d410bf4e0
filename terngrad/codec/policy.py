"""Chooses a codec for each variable when the model is built."""

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
  """The properties of a trainable variable that a policy may use.

  Attributes:
    name: path in the model, such as 'conv1/kernel'.
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
  """The variables of a model that have gradients.

  Attributes:
    indices: indices among all variables of the model; states are stored by
      them.
    specs: one `VariableSpec` per index.
    plain: names of variables that are sent as float32, whatever the codec.
    model: the specs of all variables that `indices` refers to. Unknown names
      are ''. () if these are `specs`.
  """

  indices: tuple[int, ...]
  specs: tuple[VariableSpec, ...]
  plain: frozenset[str] = frozenset()
  model: tuple[VariableSpec, ...] = ()

  def only(self, indices: Sequence[int]) -> 'Self':
    """Returns a selection of the variables, by position in `indices`."""
    return self._replace(
      indices=tuple(self.indices[i] for i in indices),
      specs=tuple(self.specs[i] for i in indices),
    )


def smaller_than(num_elements: int) -> Predicate:
  """Returns a predicate: the variable has fewer elements than this."""
  return lambda spec: spec.num_elements < num_elements


def is_logits(spec: VariableSpec) -> bool:
  """Returns True for variables of the final classifier."""
  return spec.is_logits


def always(spec: VariableSpec) -> bool:
  """Returns True for all variables."""
  return True


def policy(
  rules: Sequence[tuple[Predicate, _C]],
  specs: Sequence[VariableSpec],
  remedy: str = 'End the rules with (always, codec).',
) -> tuple[_C, ...]:
  """Assigns each variable the codec of the first rule that matches it.

  Args:
    rules: (predicate on `VariableSpec`, codec), most specific first.
    specs: the variables in the order of the gradients.
    remedy: ends the error message.

  Returns:
    One codec per variable.

  Raises:
    ValueError: no rule matches a variable; the message names it.
  """
  return tuple(_first(rules, spec, remedy) for spec in specs)


def parse(text: str) -> list[tuple[Predicate, str]]:
  """Parses rules of the form 'WHERE -> CODE; WHERE -> CODE'.

  Examples:
    >>> rules = parse('rank<2 -> identity; fc*/kernel & size>=1000 -> fp16')
    >>> print(*(code for _, code in rules))
    identity fp16

  Args:
    text: WHERE is one or more conditions joined by &; all must hold. A
      condition compares rank or size (elements) with a number by <, <=, =, >=
      or >, or it is a pattern for the name with * and ?. An empty text has no
      rules.

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
        "codec_rules: expected 'WHERE -> CODE', such as 'rank<2 -> identity', "
        f'received {rule!r}. WHERE is rank<2, size>=1000 or a pattern for '
        "names such as '*/bias'. Join conditions with & and rules with ;."
      )
    found.append((_all_of([_condition(one) for one in conditions]), code))
  return found


def parse_stages(text: str) -> list[tuple[int, str]]:
  """Parses the codes of warm-up steps, 'UNTIL -> CODE; UNTIL -> CODE'.

  Examples:
    >>> parse_stages('100 -> identity; 300 -> topk:ratio=0.1')
    [(100, 'identity'), (300, 'topk:ratio=0.1')]

  Args:
    text: UNTIL is the step number before which the code is used; UNTIL must
      increase from stage to stage.

  Returns:
    List of (UNTIL, the text of the code).

  Raises:
    ValueError: a stage has no number, no code or a number that does not
      increase.
  """
  found: list[tuple[int, str]] = []
  for stage, until, arrow, code in _arrows(text):
    last = found[-1][0] if found else 0
    if not (arrow and code and until.isdecimal() and int(until) > last):
      raise ValueError(
        "codec_warm_up: expected 'UNTIL -> CODE' with a step number above "
        f"{last}, such as '{last + 100} -> identity', received {stage!r}."
      )
    found.append((int(until), code))
  return found


def _arrows(text: str) -> list[tuple[str, ...]]:
  """Splits text at ; and each part into (part, left side, '->', right side)."""
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
        'codec_rules: expected rank or size compared with a whole number, '
        f'received {text!r}. Write size>=1000.'
      )
    return lambda spec: fnmatch.fnmatchcase(spec.name, text)
  kind, compare, number = match.groups()

  def holds(spec: VariableSpec) -> bool:
    value = len(spec.shape) if kind == 'rank' else spec.num_elements
    return _OPERATORS[compare](value, int(number))

  return holds


def _first(
  rules: Sequence[tuple[Predicate, _C]], spec: VariableSpec, remedy: str
) -> _C:
  for holds, codec in rules:
    if holds(spec):
      return codec
  raise ValueError(
    'codec: expected a matching rule for every variable, received none for '
    f'{spec.name} of shape {spec.shape}. {remedy}'
  )
