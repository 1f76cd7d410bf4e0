"""Curves of the records of runs: which there are, and which vary."""

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import pandas as pd

from terngrad.report.pages import html_page
from terngrad.report.pages import line_plot
from terngrad.training import metric
from terngrad.training import metrics

_SPARSITY = '/binary/sparsity'
_MOST_CURVES = 12
# Name of the mean of many variables.
MEAN = 'mean'

# Values by name; None if a value was not finite.
_Record = Mapping[str, Any]


class Curve(NamedTuple):
  """A named line of a plot.

  Attributes:
    name: label in the legend; '' if the title of the plot says it.
    points: (step, value) pairs, finite.
    run: index of the run among compared runs.
  """

  name: str
  points: list[tuple[float, float]]
  run: int = 0


class Plot(NamedTuple):
  """A titled set of curves.

  Attributes:
    title: title, with the unit.
    curves: at least one; each has at least one point.
    logarithmic: True for a logarithmic value axis.
  """

  title: str
  curves: list[Curve]
  logarithmic: bool = False


def plots(trained: Sequence[_Record], scored: Sequence[_Record]) -> list[Plot]:
  """Selects the plots of a run.

  Args:
    trained: records of training, each with a step, from `records.read`.
    scored: records of evaluation, likewise.

  Returns:
    One plot for each set of axes with recorded values: the metrics that define
    a curve, and sparsity.
  """
  found = [
    (drawn, _curve(records, kind.name, drawn.label, drawn.factor))
    for table, records in (
      (metrics.TRAINING, trained),
      (metrics.evaluated(), scored),
    )
    for kind, drawn in metric.entries(table, 'curve')
  ]
  for kind, drawn in metric.entries(metrics.evaluated(), 'curve'):
    for subset in metrics.epoch_subsets(trained, kind):
      name = metrics.epoch_name(subset, kind)
      label = f'{drawn.label}, {subset}, after each epoch'
      found.append((drawn, _curve(trained, name, label, drawn.factor)))
  wanted: dict[metric.Axes, list[Curve]] = {axes: [] for axes in metrics.PLOTS}
  for drawn, curve in found:
    wanted.setdefault(drawn.axes, []).append(curve)
  wanted[metrics.ZEROS] += _sparsities(trained)
  drawable = [
    Plot(axes.title, [c for c in curves if c.points], axes.logarithmic)
    for axes, curves in wanted.items()
  ]
  return [plot for plot in drawable if plot.curves]


def svg(
  plot: Plot, most: int = 300, by_run: bool = False, whole: bool = False
) -> html_page.Markup:
  """Draws a plot.

  Args:
    plot: the plot.
    most: largest number of points of a curve; longer curves are averaged.
    by_run: True gives all curves of a run the same colour.
    whole: True lets the plot take the width of the page.

  Returns:
    A <figure> element. Equal plots give equal text.
  """
  lines = [
    line_plot.Line(c.name, c.points, c.run if by_run else index)
    for index, c in enumerate(plot.curves)
  ]
  return line_plot.draw(plot.title, lines, plot.logarithmic, most, whole)


def _curve(
  records: Sequence[_Record], field: str, name: str, factor: float = 1
) -> Curve:
  """Returns the curve of a field, without records where it was not finite."""
  found = (
    (_finite(r['step']), _finite(r[field]))
    for r in records
    if r.get(field) is not None
  )
  points = [
    (step, factor * value)
    for step, value in found
    if step is not None and value is not None
  ]
  return Curve(name, points)


def _finite(value: float) -> float | None:
  """Returns a number as float, or None if it is too large or not finite."""
  try:
    number = float(value)
  except OverflowError:
    return None
  # 1e300 leaves room for factors and sums.
  return number if math.isfinite(number) and abs(number) < 1e300 else None


def _sparsities(records: Sequence[_Record]) -> list[Curve]:
  """Returns sparsity curves of the first device with coded variables.

  Returns one curve per variable, or the greatest, mean and least value if there
  are more than `_MOST_CURVES` variables.
  """
  fields = dict.fromkeys(
    field for r in records for field in r if field.endswith(_SPARSITY)
  )
  first = next(iter(fields), '').partition('/')[0]
  found = [
    _curve(records, field, field.removesuffix(_SPARSITY).partition('/')[2], 100)
    for field in fields
    if field.startswith(f'{first}/')
  ]
  if len(found) <= _MOST_CURVES:
    return found
  table = pd.DataFrame({curve.name: dict(curve.points) for curve in found})
  summaries = {
    f'greatest of {len(found)} variables': table.max(axis=1),
    MEAN: table.mean(axis=1),
    'least': table.min(axis=1),
  }
  return [Curve(name, [*each.items()]) for name, each in summaries.items()]
