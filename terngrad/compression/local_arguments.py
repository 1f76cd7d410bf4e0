"""Arguments of `parallelize` for local steps."""

import math
from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import TypedDict

from absl import logging

from terngrad.codec import method
from terngrad.recipes import catalog


class LocalChoices(NamedTuple):
  """Options of local steps, as the trainers' flags of the same meaning.

  Attributes:
    steps: number of local steps between two exchanges; 1 for none.
    inner: optimizer of the local steps, as for `--inner_optimizer`.
    outer_learning_rate: of the optimizer that applies the mean change.
    recipe: name of the recipe that set options; '' for none.
  """

  steps: int = 1
  inner: str = 'momentum'
  outer_learning_rate: float = 1.0
  recipe: str = ''


class LocalArguments(TypedDict, total=False):
  """Arguments of `parallelize` for local steps.

  Attributes:
    local_steps: number of local steps of each device between two exchanges.
      Each takes a batch; all batches need one size. `optimizer` applies the
      mean change of the parameters, and `learning_rate` is that of the local
      steps.
    inner_optimizer: of local steps, a text as for `--inner_optimizer`.
    outer_learning_rate: of `optimizer`, with local steps.
    recipe: name of a published recipe, such as 'sparseloco'. It sets the other
      arguments here unless they are given, and `codec`, `optimizer` and
      `learning_rate` where they equal their defaults; the log names these.
  """

  local_steps: int
  inner_optimizer: str
  outer_learning_rate: float
  recipe: str


# Defaults of `parallelize` and of `LocalArguments`, by attribute of a recipe.
_DEFAULTS = {
  'every': 1,
  'codec': 'identity',
  'outer': 'nesterov:momentum=0.9',
  'outer_learning_rate': 1.0,
  'inner': 'momentum',
  'inner_learning_rate': 0.1,
}
# Of these the arguments in the signature of `parallelize`. It cannot be seen
# whether a user gave such a default.
_SIGNATURE = {
  'codec': 'codec',
  'outer': 'optimizer',
  'inner_learning_rate': 'learning_rate',
}
# Values that count as not given.
_NOT_GIVEN = {
  key: default if key in _SIGNATURE else None
  for key, default in _DEFAULTS.items()
}


class Chosen(NamedTuple):
  """Arguments of `parallelize`, with those of the recipe.

  Attributes:
    learning_rate: of the steps, or of local steps.
    choices: `codec`, `optimizer` and `local` of `building.Choices`.
  """

  learning_rate: float | Callable[[int], float]
  choices: dict[str, Any]


def choose(
  codec: str | method.Method,
  optimizer: str | None,
  learning_rate: float | Callable[[int], float],
  num_workers: int,
  *,
  local_steps: int | None = None,
  inner_optimizer: str | None = None,
  outer_learning_rate: float | None = None,
  recipe: str = '',
) -> Chosen:
  """Completes arguments that are not given, by a recipe or by defaults.

  Raises:
    ValueError: the recipe is unknown, or for fewer workers, or a learning rate
      is not valid.
  """
  values: dict[str, Any] = {
    'every': local_steps,
    'codec': codec,
    'outer': optimizer,
    'outer_learning_rate': outer_learning_rate,
    'inner': inner_optimizer,
    'inner_learning_rate': learning_rate,
  }
  missing = [key for key, value in values.items() if value == _NOT_GIVEN[key]]
  if not recipe:
    values |= {key: _DEFAULTS[key] for key in missing}
  else:
    found = catalog.find(recipe)
    found.check_workers(num_workers)
    values |= {key: getattr(found, key) for key in missing}
    replaced = [_SIGNATURE[key] for key in missing if key in _SIGNATURE]
    # A warning, since absl shows no lower level by default.
    logging.warning(
      '%s. Defaults replaced by the recipe: %s',
      *(found.describe(values), ', '.join(replaced) or 'none'),
    )
  count, codec, optimizer, outer_rate, inner, rate = values.values()
  outer_rate = checked_rate(outer_rate, 'outer_learning_rate')
  if not callable(rate):
    checked_rate(rate)
  local = LocalChoices(count, inner, outer_rate, recipe)
  return Chosen(rate, {'codec': codec, 'optimizer': optimizer, 'local': local})


def checked_rate(rate: float, name: str = 'learning_rate') -> float:
  """Returns a learning rate.

  Raises:
    ValueError: it is negative, or not finite in float32.
  """
  found = float(rate)
  # One half unit in the last place more would be infinite in float32.
  if not 0 <= found < math.ldexp(2 - 2**-24, 127):
    raise ValueError(
      f'{name}: expected a finite number of 0 or more, received {found}. Use '
      'for example 0.1; a schedule must return such a number for every step.'
    )
  return found
