"""Divides the curves of runs into plots and values that never change."""

from collections.abc import Mapping
from collections.abc import Sequence

from terngrad.report import curves
from terngrad.training import metrics

_MOVING_AVERAGE = ', moving average'

# Values that do not change, by label.
Constants = dict[str, str]


def divide(
  plots: Sequence[curves.Plot],
) -> tuple[list[curves.Plot], Constants]:
  """Removes the curves of a run that are constant.

  A single point stays if another curve of its plot varies.

  Returns:
    The plots with curves that vary, and the removed values as text, by label.
  """
  left, constants = [], Constants()
  for plot in plots:
    varies = any(map(_varies, plot.curves))
    drawn = [
      curve
      for curve in plot.curves
      if _varies(curve) or (varies and len(curve.points) == 1)
    ]
    for curve in (c for c in plot.curves if c not in drawn):
      constants[_label(plot, curve)] = f'{curve.points[-1][1]:.6g}'
    if drawn:
      left.append(plot._replace(curves=drawn))
  return left, constants


def compare(
  runs: Mapping[str, Sequence[curves.Plot]],
) -> tuple[list[curves.Plot], dict[str, Constants]]:
  """Plots each curve of several runs in one plot, with a curve per run.

  Where there is a moving average, the loss itself is left out. Of several
  variables, the mean is shown.

  Args:
    runs: plots from `curves.plots`, by the name of the run.

  Returns:
    The plots in which a run varies, and for each run the values of the other
    plots as text, by label.
  """
  merged: dict[str, curves.Plot] = {}
  for index, (name, plots) in enumerate(runs.items()):
    for plot in plots:
      for curve in _compared(plot):
        title = _label(plot, curve)
        empty = curves.Plot(title, [], plot.logarithmic)
        found = merged.setdefault(title, empty).curves
        found.append(curve._replace(name=name, run=index))
  constants: dict[str, Constants] = {name: {} for name in runs}
  for title, plot in merged.items():
    if not any(map(_varies, plot.curves)):
      for curve in plot.curves:
        constants[curve.name][title] = f'{curve.points[-1][1]:.6g}'
  drawn = [p for p in merged.values() if any(map(_varies, p.curves))]
  # A later run may have more curves than the first.
  order = {axes.title: number for number, axes in enumerate(metrics.PLOTS)}
  return sorted(
    drawn, key=lambda plot: order.get(plot.title.split(': ')[0], len(order))
  ), constants


def _compared(plot: curves.Plot) -> list[curves.Curve]:
  """Returns the curves of a run's plot that are compared with other runs."""
  names = {curve.name for curve in plot.curves}
  if plot.title == metrics.ZEROS.title:
    return [_mean(plot.curves)]
  return [c for c in plot.curves if c.name + _MOVING_AVERAGE not in names]


def _mean(found: Sequence[curves.Curve]) -> curves.Curve:
  """Returns the mean of the curves at each step, as a curve."""
  for curve in found:
    if curve.name == curves.MEAN:
      return curve
  values: dict[float, list[float]] = {}
  for curve in found:
    for step, value in curve.points:
      values.setdefault(step, []).append(value)
  points = [(step, sum(each) / len(each)) for step, each in values.items()]
  return curves.Curve(curves.MEAN, sorted(points))


def _label(plot: curves.Plot, curve: curves.Curve) -> str:
  return f'{plot.title}: {curve.name}' if curve.name else plot.title


def _varies(curve: curves.Curve) -> bool:
  return len({value for _, value in curve.points}) > 1
