"""Curves of a run's records, drawn as SVG."""

import io
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib import figure

from terngrad.training import metric
from terngrad.training import metrics

_SPARSITY = '/binary/sparsity'
_MOST_CURVES = 12

# Values by name; None if a value was not finite.
_Record = Mapping[str, Any]


class Curve(NamedTuple):
  """A named line of a plot.

  Attributes:
    name: label in the legend.
    points: (step, value) pairs.
  """

  name: str
  points: list[tuple[int, float]]


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
      (metrics.EVALUATION, scored),
    )
    for kind, drawn in metric.entries(table, 'curve')
  ]
  for kind, drawn in metric.entries(metrics.EVALUATION, 'curve'):
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


def svg(plot: Plot) -> str:
  """Draws a plot.

  Returns:
    An <svg> element without an XML header. Equal plots give equal text.
  """
  page = figure.Figure(figsize=(6, 3.2))  # without pyplot, needs no display
  axes = page.subplots()
  for curve in plot.curves:
    steps, values = zip(*curve.points, strict=True)
    marker = 'o' if len(steps) < 20 else None
    axes.plot(steps, values, label=curve.name, marker=marker, markersize=3)
  if plot.logarithmic and all(v > 0 for c in plot.curves for _, v in c.points):
    axes.set_yscale('log')
  axes.set_title(plot.title, loc='left')
  axes.set_xlabel('step')
  axes.grid(alpha=0.3)
  if len(plot.curves) > 1:
    axes.legend(fontsize='x-small', loc='center left', bbox_to_anchor=(1, 0.5))
  page.tight_layout()
  return element(page, plot.title)


def element(page: figure.Figure, salt: str) -> str:
  """Returns a figure as an <svg> element without an XML header.

  Args:
    page: the figure.
    salt: text from which element ids are derived. Equal figures with equal salt
      give equal text. Figures on one page need different salts.
  """
  with mpl.rc_context({'svg.hashsalt': salt}):
    text = io.StringIO()
    page.savefig(text, format='svg', metadata={'Date': None})
  content = text.getvalue()
  return content[content.index('<svg') :]


def _curve(
  records: Sequence[_Record], field: str, name: str, factor: float = 1
) -> Curve:
  """Returns the curve of a field, without records where it was not finite."""
  points = [
    (r['step'], factor * r[field]) for r in records if r.get(field) is not None
  ]
  return Curve(name, points)


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
    'mean': table.mean(axis=1),
    'least': table.min(axis=1),
  }
  return [Curve(name, [*each.items()]) for name, each in summaries.items()]
