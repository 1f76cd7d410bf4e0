"""Plot of a sweep: accuracy by variant and over bits, steps and seconds."""

import math
from collections.abc import Mapping

import pandas as pd
from matplotlib import axes as axes_lib
from matplotlib import figure
from matplotlib import ticker

from terngrad.measure import labels

# Columns that accuracy is plotted over; True for a logarithmic axis.
MODELLED = 'modelled seconds'
OVER = {
  'bits/element': True,
  'steps': False,
  'seconds': False,
  MODELLED: True,
}


def chart(table: pd.DataFrame, by_step: pd.DataFrame) -> figure.Figure:
  """Plots accuracies by variant and over bits, steps and seconds.

  Args:
    table: from `report.sweep.summary`; its confidence intervals are drawn,
      except those that are NaN.
    by_step: from `report.sweep.read_curves`; only variants in `table` are
      drawn.
  """
  over = [column for column in OVER if column in table]
  curves = {
    number: by_step[variant].dropna()
    for number, variant in enumerate(table['variant'])
    if variant in by_step
  }
  # Inches.
  heights = [1 + 0.25 * len(table), *[6] * (len(over) + bool(curves))]
  drawn = figure.Figure(figsize=(11, sum(heights)), layout='constrained')
  ratios = {'height_ratios': heights}
  first, *others = drawn.subplots(len(heights), gridspec_kw=ratios)
  _by_variant(first, table)
  if curves:
    *others, last = others
    _by_step(last, curves)
  for axes, column in zip(others, over, strict=True):
    for number, (_, row) in enumerate(table.iterrows()):
      axes.errorbar(
        row[column],
        row['accuracy %'],
        yerr=None if math.isnan(row['95 %']) else row['95 %'],
        fmt='o',
        capsize=3,
        color=f'C{number}',
      )
    axes.set(xlabel=column, ylabel='accuracy, %')
    if OVER[column]:
      axes.set_xscale('log')
      axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
      axes.xaxis.set_minor_formatter('')
    axes.xaxis.set_major_formatter('{x:g}')
    axes.margins(0.1)
    axes.grid(alpha=0.3)
  # Labels depend on the positions of points, so freeze the layout. The layout
  # solver orders its terms by address, so positions differ in the last bits.
  drawn.draw_without_rendering()
  drawn.set_layout_engine('none')
  for axes in drawn.axes:
    left, bottom, width, height = axes.get_position().bounds
    axes.set_position(
      (round(left, 6), round(bottom, 6), round(width, 6), round(height, 6))
    )
  for axes, column in zip(others, over, strict=True):
    known = table.dropna(subset=column)
    columns = 'variant', column, 'accuracy %'
    labels.annotate(axes, *(list(known[name]) for name in columns))
  if curves:
    ends = [(c.name, c.index[-1], c.iloc[-1]) for c in curves.values()]
    labels.annotate(last, *zip(*ends, strict=True))
  return drawn


def _by_variant(axes: axes_lib.Axes, table: pd.DataFrame) -> None:
  """Plots each variant's mean and interval, one row per variant."""
  positions = range(len(table))
  axes.errorbar(
    table['accuracy %'], positions, xerr=table['95 %'], fmt='o', capsize=3
  )
  axes.set_yticks(positions, table['variant'], fontsize='small')
  axes.set(xlabel='accuracy, %', ylim=(len(table) - 0.5, -0.5))
  axes.grid(alpha=0.3)


def _by_step(axes: axes_lib.Axes, curves: Mapping[int, pd.Series]) -> None:
  """Plots each variant's mean accuracy after every epoch.

  Args:
    axes: the axes to draw in.
    curves: accuracy by step, by the variant's number; the number selects the
      same colour as in the other axes.
  """
  for number, curve in curves.items():
    axes.plot(curve, marker='.', color=f'C{number}')
  axes.set(xlabel='steps', ylabel='accuracy after an epoch, %')
  axes.xaxis.set_major_formatter('{x:g}')
  axes.margins(x=0.1)
  axes.grid(alpha=0.3)
