"""Figures that a check measures, as lines between processes."""

import json
from collections.abc import Callable
from typing import NamedTuple

_PREFIX = 'figure '


class Figure(NamedTuple):
  """A measured number or a fact.

  Attributes:
    name: what was measured. A later figure of this name replaces this one.
    value: a number, or a text such as the device's name.
    unit: unit of a number.
    limit: largest number that is accepted; None accepts all.
  """

  name: str
  value: float | str
  unit: str = ''
  limit: float | None = None

  @property
  def exceeds_limit(self) -> bool:
    """Whether the number is above its limit, or not a number."""
    return self.limit is not None and not (
      not isinstance(self.value, str) and self.value <= self.limit
    )

  def line(self) -> str:
    """Returns a line for people."""
    found = f'{self.name}: {self.text()} {self.unit}'.rstrip()
    if self.limit is None:
      return found
    verdict = 'MORE THAN' if self.exceeds_limit else 'at most'
    return f'{found} ({verdict} {self.limit:g})'

  def text(self) -> str:
    """Returns the value with four digits, or all digits of whole numbers."""
    if isinstance(self.value, str):
      return self.value
    whole = self.value == int(self.value) if abs(self.value) < 1e15 else False
    return f'{int(self.value):,}' if whole else f'{self.value:.4g}'


# Takes a figure as soon as it is measured.
Report = Callable[[Figure], None]


def encode(figure: Figure) -> str:
  """Returns a line for another process."""
  return _PREFIX + json.dumps(figure)


def decode(line: str) -> Figure | None:
  """Returns the figure of a line of `encode`; None for other lines."""
  if not line.startswith(_PREFIX):
    return None
  try:
    figure = Figure(*json.loads(line.removeprefix(_PREFIX)))
  except (ValueError, TypeError):
    return None
  return figure if isinstance(figure.name, str) else None
