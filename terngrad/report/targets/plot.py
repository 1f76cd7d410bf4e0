"""Plot of scores over megabytes and over predicted seconds."""

from collections.abc import Mapping

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
  them have a score; a variant with one seed has circles.

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
      _draw(axes, number, name, _mean(curves, name), unit)
    axes.set(xlabel=heading, ylabel=score.label, xscale='log')
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter('{x:g}')
    axes.xaxis.set_minor_formatter('')
    axes.grid(alpha=0.3)
  drawn.axes[0].legend(fontsize='small', ncols=2)
  return drawn


def _mean(curves: table.Curves, variant: str) -> tuple[pd.Series, int]:
  """Returns a variant's mean score by step, and the number of its seeds."""
  runs = [
    pd.Series(dict(points))
    for (name, _), points in curves.items()
    if name == variant
  ]
  return pd.concat(runs, axis=1).mean(axis=1, skipna=False), len(runs)


def _draw(
  axes: axes_lib.Axes,
  number: int,
  name: str,
  found: tuple[pd.Series, int],
  unit: float,
) -> None:
  mean, seeds = found
  axes.plot(
    mean.index * unit,
    mean,
    _STYLES[number // _COLORS % len(_STYLES)],
    marker='.' if seeds > 1 else 'o',
    markerfacecolor=None if seeds > 1 else 'none',
    color=f'C{number % _COLORS}',
    label=name if seeds > 1 else f'{name} (one seed)',
  )
