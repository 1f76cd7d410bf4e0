"""Curves of a run, from its records, as SVG."""

import io
import statistics
from typing import NamedTuple

import matplotlib as mpl
from matplotlib import figure

from terngrad.training import metric
from terngrad.training import metrics

_SPARSITY = '/binary/sparsity'
_MOST_CURVES = 12


class Curve(NamedTuple):
  """A named line of a plot.

  Attributes:
    name: for the legend.
    points: list of (step, value).
  """

  name: str
  points: list


class Plot(NamedTuple):
  """A plot.

  Attributes:
    title: with the unit.
    curves: list of `Curve`, at least one with a point.
    logarithmic: True for a logarithmic axis of values.
  """

  title: str
  curves: list
  logarithmic: bool = False


def plots(trained, scored):
  """What there is to draw of a run.

  Args:
    trained: records of training, list of dict with a step: `records.read`.
    scored: records of evaluation, the same.

  Returns:
    List of `Plot`: of the metrics that have a curve, and of sparsity; those
    without a number are left out.
  """
  wanted = {axes: [] for axes in metrics.PLOTS}
  for table, records in (
    (metrics.TRAINING, trained),
    (metrics.EVALUATION, scored),
  ):
    for kind, drawn in metric.entries(table, 'curve'):
      wanted.setdefault(drawn.axes, []).append(
        _curve(records, kind.name, drawn.label, drawn.factor)
      )
  for kind, drawn in metric.entries(metrics.EVALUATION, 'curve'):
    wanted.setdefault(drawn.axes, []).extend(
      _curve(
        trained,
        metrics.epoch_name(subset, kind),
        f'{drawn.label}, {subset}, after each epoch',
        drawn.factor,
      )
      for subset in metrics.epoch_subsets(trained, kind)
    )
  wanted[metrics.ZEROS] += _sparsities(trained)
  found = []
  for axes, curves in wanted.items():
    curves = [curve for curve in curves if curve.points]
    if curves:
      found.append(Plot(axes.title, curves, axes.logarithmic))
  return found


def svg(plot):
  """Draws a plot.

  Args:
    plot: `Plot`.

  Returns:
    str, an <svg> element without a header; the same for the same plot.
  """
  page = figure.Figure(figsize=(6, 3.2))  # without pyplot it needs no screen
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


def element(page, salt):
  """A `figure.Figure` as an <svg> element without a header.

  Args:
    page: the figure.
    salt: text by which the names of its parts are made: equal figures of equal
      salt are equal texts, and figures of one page want different ones.

  Returns:
    str.
  """
  with mpl.rc_context({'svg.hashsalt': salt}):
    text = io.StringIO()
    page.savefig(text, format='svg', metadata={'Date': None})
  content = text.getvalue()
  return content[content.index('<svg') :]


def _curve(records, field, name, factor=1):
  """The numbers of a field; records hold None where one was not finite."""
  points = [
    (r['step'], factor * r[field]) for r in records if r.get(field) is not None
  ]
  return Curve(name, points)


def _sparsities(records):
  """Of the variables of the first device that was coded.

  A curve for each; three for all of them, where that would be too many to tell
  apart.
  """
  fields = dict.fromkeys(
    field for r in records for field in r if field.endswith(_SPARSITY)
  )
  towers = [field.partition('/')[0] for field in fields]
  found = [
    _curve(records, field, field.removesuffix(_SPARSITY).partition('/')[2], 100)
    for field, tower in zip(fields, towers, strict=True)
    if tower == towers[0]
  ]
  if len(found) <= _MOST_CURVES:
    return found
  by_step = {}
  for curve in found:
    for step, value in curve.points:
      by_step.setdefault(step, []).append(value)
  return [
    Curve(name, [(step, act(values)) for step, values in by_step.items()])
    for name, act in (
      (f'greatest of {len(found)} variables', max),
      ('mean', statistics.fmean),
      ('least', min),
    )
  ]
