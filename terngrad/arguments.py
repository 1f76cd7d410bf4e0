"""Checks of numbers that a program passes, which may be NumPy's."""

import numbers
import operator
from typing import Any

import numpy as np


def whole_number(
  name: str, value: Any, least: int, most: int = 2**63 - 1
) -> int:
  """Returns a whole number of any type of integer as an int.

  Raises:
    ValueError: the value is no whole number (bool is none), or out of range.
  """
  if not isinstance(value, numbers.Integral) or isinstance(value, bool):
    found = None
  else:
    found = operator.index(value)
  if found is None or not least <= found <= most:
    above = f'{least} or more' if most == 2**63 - 1 else f'{least} to {most}'
    raise ValueError(
      f'{name}: expected a whole number, {above}, received {value!r}. Use for '
      f'example {name}={max(1, least)}.'
    )
  return found


def above_zero(name: str, value: Any) -> float:
  """Returns a number above 0 that is finite in float32, as a float.

  Raises:
    ValueError: the value is no such number (bool is none).
  """
  is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
  largest = float(np.finfo(np.float32).max)
  if not is_number or not 0 < float(value) <= largest:
    raise ValueError(
      f'{name}: expected a number above 0, received {value!r}. Correct it, or '
      'leave it out for the default.'
    )
  return float(value)
