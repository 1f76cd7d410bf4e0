"""Plot of scores over megabytes and over predicted seconds."""

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd
from matplotlib import axes as axes_lib
from matplotlib import figure
from matplotlib import ticker

from terngrad.report.targets import scores
from terngrad.report.targets import table

# Inches.
_WIDTH, _HEIGHT = 11, 5
_STYLES = ('-', '--', ':', '-.')
_COLORS = 10


def chart(
  curves: table.Curves,
  variants: Mapping[str, table.Variant],
  score: scores.TargetScore,
) -> figure.Figure:
  """Draws one panel for megabytes, and one for the seconds on each network.

  A line is the mean over the seeds of a variant after an epoch, where all of
  them have a score; a variant with one seed has circles. The legend has the
  number of failed runs, which have no score.

  Args:
    curves: the points of every run.
    variants: costs of a step.
    score: the kind of the scores.
  """
  panels = [table.MEGABYTES, *next(iter(variants.values())).seconds]
  drawn = figure.Figure(
    figsize=(_WIDTH, _HEIGHT * len(panels)), layout='constrained'
  )
  for axes, heading in zip(
    drawn.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True
  ):
    for number, (name, costs) in enumerate(variants.items()):
      unit = {table.MEGABYTES: costs.megabytes, **costs.seconds}[heading]
      _draw(axes, number, name, _line(curves, name), unit)
    axes.set(xlabel=heading, ylabel=score.label, xscale='log')
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter('{x:g}')
    axes.xaxis.set_minor_formatter('')
    axes.grid(alpha=0.3)
  legend = drawn.axes[0].legend(fontsize='small', ncols=2)
  for text in legend.get_texts():
    text.set_parse_math(False)
  return drawn


class _Line(NamedTuple):
  """A variant's mean score by step, and the numbers of its runs."""

  mean: pd.Series
  seeds: int
  failed: int

  def label(self, name: str) -> str:
    """Returns the name with what a reader must know of the runs."""
    notes = ['one seed'] if self.seeds == 1 else []
    notes += [f'{self.failed} failed'] if self.failed else []
    return f'{name} ({", ".join(notes)})' if notes else name


def _line(curves: table.Curves, variant: str) -> _Line:
  points_of_runs = [p for (name, _), p in curves.items() if name == variant]
  runs = [pd.Series(dict(points)) for points in points_of_runs if points]
  failed = len(points_of_runs) - len(runs)
  if not runs:
    return _Line(pd.Series(dtype=float), 0, failed)
  mean = pd.concat(runs, axis=1).mean(axis=1, skipna=False)
  return _Line(mean, len(runs), failed)


def _draw(
  axes: axes_lib.Axes,
  number: int,
  name: str,
  line: _Line,
  unit: float,
) -> None:
  several = line.seeds > 1
  axes.plot(
    line.mean.index * unit,
    line.mean,
    _STYLES[number // _COLORS % len(_STYLES)],
    marker='.' if several else 'o',
    markerfacecolor=None if several else 'none',
    color=f'C{number % _COLORS}',
    label=line.label(name),
  )
