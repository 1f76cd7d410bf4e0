"""Axes of small plots: limits, ticks, and coordinates in an SVG element."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from matplotlib import ticker

_MARGIN = 0.04
_MOST_TICKS = 8


class Scale(NamedTuple):
  """A mapping from values to coordinates.

  Attributes:
    low: value at `start`.
    high: value at `end`; greater than `low`.
    start: coordinate in units of the SVG element.
    end: coordinate of the other end.
    logarithmic: True for a logarithmic scale; then `low` is positive.
  """

  low: float
  high: float
  start: float
  end: float
  logarithmic: bool = False

  def place(self, value: float) -> float:
    """Returns the coordinate of a value."""
    low, high, at = map(self._level, (self.low, self.high, value))
    return self.start + (at - low) / (high - low) * (self.end - self.start)

  def ticks(self) -> list[float]:
    """Returns round values inside the limits, in ascending order."""
    found: list[float] = []
    if self.logarithmic:
      for factors in ((1, 2, 5), (1,)):
        locator = ticker.LogLocator(subs=factors, numticks=_MOST_TICKS)
        found = self._inside(locator.tick_values(self.low, self.high))
        if 1 < len(found) <= _MOST_TICKS:
          return found
    if len(found) < 2:
      even = ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])
      found = self._inside(even.tick_values(self.low, self.high))
    return found

  def labeled_ticks(self) -> list[tuple[float, str]]:
    """Returns the coordinate, to a tenth, and the label of each tick."""
    return [(round(self.place(v), 1), label(v)) for v in self.ticks()]

  def _inside(self, values: Iterable[float]) -> list[float]:
    rounded = (float(f'{value:.9g}') for value in values)
    return sorted({v for v in rounded if self.low <= v <= self.high})

  def _level(self, value: float) -> float:
    return math.log10(value) if self.logarithmic else value


def fit(
  values: Iterable[float], start: float, end: float, logarithmic: bool = False
) -> Scale:
  """Returns a scale on which all values are, with a margin at both ends.

  Args:
    values: at least one number; all are at least -1e300 and at most 1e300.
    start: coordinate of the low end.
    end: coordinate of the high end.
    logarithmic: True for a logarithmic scale, if all values are positive and
      within 1e-100 and 1e100.
  """
  values = [*values]
  low, high = min(values), max(values)
  # Below this, differences are rounding errors.
  least = max(1e-9 * max(abs(low), abs(high)), 1e-300)
  if logarithmic and 1e-100 < low < high < 1e100 and high - low > least:
    factor = (high / low) ** _MARGIN
    low, high = low / factor, high * factor
  else:
    logarithmic = False
    margin = _MARGIN * (high - low)
    if high - low <= least:
      margin = 0.1 * abs(high) or 1.0
    low, high = low - margin, high + margin
  low, high = float(f'{low:.12g}'), float(f'{high:.12g}')
  return Scale(low, high, start, end, logarithmic)


def label(value: float) -> str:
  """Formats a tick."""
  text = f'{value:,.9g}'
  return text if len(text) < 12 else f'{value:.3g}'
