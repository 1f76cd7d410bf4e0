"""Checks states of local steps that a file holds, which may be damaged."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from terngrad import errors

_Shapes: TypeAlias = Sequence[Sequence[int]]
_REQUIRED, *_OPTIONAL = 'exchanges', 'updates', 'steps'


def check(
  states: Mapping[str, np.ndarray], parameters: _Shapes, statistics: _Shapes
) -> None:
  """Refuses states that `LocalSteps.get_states` cannot have returned.

  The helper checks the states of the outer optimizer and of the codec.

  Args:
    states: by name.
    parameters: shapes of the parameters.
    statistics: shapes of the statistics. States may have others, or none.

  Raises:
    errors.ConfigError: an array is missing, or has impossible values.
  """
  for name in (_REQUIRED, *(n for n in _OPTIONAL if n in states)):
    count = states.get(name, np.zeros([0]))
    if count.shape or count.dtype.kind not in 'iu' or count < 0:
      raise _refused(name, 'a whole number, 0 or more', count)
  of_all = [*parameters, *statistics]
  for family, shapes, are_complete in (
    ('parameter', parameters, True),
    ('pending_mean', parameters, True),
    ('pending_local', parameters, True),
    ('shift', of_all, True),
    ('correction', statistics, False),
    ('statistics', statistics, False),
  ):
    names = [f'{family}:{index}' for index in range(len(shapes))]
    is_needed = family == 'parameter' or (
      are_complete and any(name in states for name in names)
    )
    for name, shape in zip(names, shapes, strict=True):
      if is_needed or name in states:
        _check_array(name, states.get(name), shape)


def _check_array(
  name: str, array: np.ndarray | None, shape: Sequence[int]
) -> None:
  expected = f'finite float32 {list(shape)}'
  if array is None:
    raise _refused(name, expected, np.zeros([0]))
  if array.dtype != np.float32 or array.shape != tuple(shape):
    raise _refused(name, expected, array)
  if not np.isfinite(array).all():
    raise _refused(name, expected, array[~np.isfinite(array)][:1])


def _refused(
  name: str, expected: str, received: np.ndarray
) -> errors.ConfigError:
  shown = f'{received.dtype} {list(received.shape)}'
  if not received.size:
    shown = 'none'
  elif received.size == 1:
    shown = str(received.reshape(-1)[0])
  return errors.ConfigError(
    f'Local steps: expected loaded states with {name}, {expected}, received '
    f'{shown}. Load states of the same model that are not damaged, or none.'
  )
