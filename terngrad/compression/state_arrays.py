"""Saved states of compression methods, as arrays by name.

A file may be damaged, so arrays are checked before they are used.
"""

import json
import math
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from terngrad.codec import policy

# int64 [3]: the first worker whose states are saved, their number, and the
# number of all workers.
WORKERS = 'workers'
# The result of `encode`.
VARIABLES = 'variables'
_MOST_WORKERS = 2**20


def number_of(name: str) -> int | None:
  """Returns the variable's index in the name of a state, or None."""
  _, colon, number = name.rpartition(':')
  return int(number) if colon and number.isdecimal() else None


def encode(specs: Sequence[policy.VariableSpec]) -> np.ndarray:
  """Encodes the paths and shapes of all trained variables for a checkpoint.

  Returns:
    uint8 [bytes], JSON in UTF-8.
  """
  listed = [[spec.name, list(spec.shape)] for spec in specs]
  return np.frombuffer(json.dumps(listed).encode(), np.uint8)


def decode(array: np.ndarray) -> tuple[policy.VariableSpec, ...]:
  """Decodes the result of `encode`.

  Raises:
    ValueError: the array is damaged.
  """
  if array.dtype != np.uint8 or array.ndim != 1:
    raise ValueError(f'{array.dtype} {list(array.shape)}')
  try:
    listed = json.loads(array.tobytes().decode())
    specs = [policy.VariableSpec(path, tuple(s)) for path, s in listed]
  except (RecursionError, TypeError) as error:
    raise ValueError(str(error)) from error
  for spec in specs:
    is_shape = all(type(n) is int and n >= 0 for n in spec.shape)
    if not isinstance(spec.name, str) or not is_shape:
      raise ValueError(f'{spec.name!r} {spec.shape!r}')
  return tuple(specs)


def checked(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns arrays if `CodecStates.arrays` can have made them.

  Raises:
    ValueError: one has another dtype or shape, or impossible values.
  """
  found = {name: np.asarray(array) for name, array in arrays.items()}
  count, num_variables = 1, math.inf
  if WORKERS in found:
    count = _check_workers(found[WORKERS])
  if VARIABLES in found:
    try:
      num_variables = len(decode(found[VARIABLES]))
    except ValueError as error:
      raise _damaged(
        VARIABLES, 'the paths and shapes of variables', error
      ) from error
  for name, array in found.items():
    number = number_of(name)
    if number is None:
      continue
    if WORKERS not in found:
      raise _damaged(WORKERS, f'the workers of {name}', 'none')
    if not number < num_variables:
      raise _damaged(name, f'an index below {num_variables}', number)
    if array.dtype != np.float32 or array.shape[:1] not in ((1,), (count,)):
      raise _damaged(
        name,
        f'float32 with 1 or {count} rows',
        f'{array.dtype} {list(array.shape)}',
      )
  return found


def _check_workers(array: np.ndarray) -> int:
  """Returns the number of workers whose states are saved."""
  expected = f'3 whole numbers [first, count, all], all at most {_MOST_WORKERS}'
  if array.shape != (3,) or array.dtype.kind not in 'iu':
    raise _damaged(WORKERS, expected, f'{array.dtype} {list(array.shape)}')
  first, count, total = map(int, array)
  if not 0 <= first < first + count <= total <= _MOST_WORKERS:
    raise _damaged(WORKERS, expected, [first, count, total])
  return count


def _damaged(name: str, expected: str, received: object) -> ValueError:
  return ValueError(
    f'Codec states: expected {name} to be {expected}, received '
    f'{received!s:.200}. The file is damaged, or another program wrote it: '
    'load another one, or the weights alone.'
  )
