"""Plot of a sweep: accuracy by variant and over bits, steps and seconds."""

import itertools
import math
from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd
from matplotlib import axes as axes_lib
from matplotlib import figure
from matplotlib import ticker

from terngrad.measure import labels
from terngrad.report.statistics import intervals
from terngrad.report.statistics import rankings

# Columns that accuracy is plotted over; True for a logarithmic axis.
MODELLED = 'modelled seconds'
OVER = {
  'bits/element': True,
  'steps': False,
  'seconds': False,
  MODELLED: True,
}


class AccuracyPlot(NamedTuple):
  """A plot of accuracy over a column.

  Attributes:
    column: name of the horizontal axis.
    ranking: name of the ranking that is plotted; '' for all variants.
    rows: rows of the summary whose cells in `column` are not NaN.
  """

  column: str
  ranking: str
  rows: pd.DataFrame


def panels(table: pd.DataFrame) -> list[AccuracyPlot]:
  """Chooses what is plotted of a summary beside the means by variant.

  Over steps there is one plot of all variants. Over other columns each ranking
  with several variants has a plot.
  """
  found = []
  parts = rankings.split(table)
  for column in OVER:
    if column not in table:
      continue
    shown = {'': table} if column == 'steps' else parts
    for name, part in shown.items():
      rows = part.dropna(subset=column)
      if len(rows) > (len(shown) > 1):
        found.append(AccuracyPlot(column, name, rows))
  return found


def is_open(table: pd.DataFrame) -> list[bool]:
  """Returns which variants have an open mark: one seed, or failed runs."""
  failed = table['failed'] > 0 if 'failed' in table else False
  return list((table['seeds'] < 2) | failed)


def names(table: pd.DataFrame) -> list[str]:
  """Returns the variants' labels, with the number of failed runs if any."""
  failed = table['failed'] if 'failed' in table else [0] * len(table)
  return [
    f'{name} ({count} failed)' if count else str(name)
    for name, count in zip(table['variant'], failed, strict=True)
  ]


def chart(table: pd.DataFrame, by_step: pd.DataFrame) -> figure.Figure:
  """Plots accuracies by variant and over bits, steps and seconds.

  Args:
    table: from `report.sweep.summary`; its confidence intervals are drawn,
      except those that are NaN.
    by_step: from `report.sweep.read_curves`; only variants in `table` are
      drawn.
  """
  over = panels(table)
  numbers = {name: number for number, name in enumerate(table['variant'])}
  curves = {
    number: by_step[variant].dropna()
    for variant, number in numbers.items()
    if variant in by_step
  }
  # Inches.
  heights = [1 + 0.25 * len(table), *[6] * (len(over) + bool(curves))]
  drawn = figure.Figure(figsize=(11, sum(heights)), layout='constrained')
  ratios = {'height_ratios': heights}
  all_axes = drawn.subplots(len(heights), squeeze=False, gridspec_kw=ratios)
  first, *others = all_axes[:, 0]
  _by_variant(first, table)
  if curves:
    *others, last = others
    _by_step(last, curves)
  for axes, panel in zip(others, over, strict=True):
    _scatter(axes, panel, numbers)
  _freeze(drawn)
  for axes, panel in zip(others, over, strict=True):
    columns = panel.rows[panel.column], panel.rows['accuracy %']
    labels.annotate(axes, names(panel.rows), *map(list, columns))
  if curves:
    ends = [(c.name, c.index[-1], c.iloc[-1]) for c in curves.values()]
    labels.annotate(last, *zip(*ends, strict=True))
  return drawn


def _freeze(drawn: figure.Figure) -> None:
  """Fixes the layout, because labels depend on the positions of points.

  The layout solver orders its terms by address, so positions differ in the last
  bits.
  """
  drawn.draw_without_rendering()
  drawn.set_layout_engine('none')
  for axes in drawn.axes:
    left, bottom, width, height = axes.get_position().bounds
    axes.set_position(
      (round(left, 6), round(bottom, 6), round(width, 6), round(height, 6))
    )


def _scatter(
  axes: axes_lib.Axes, panel: AccuracyPlot, numbers: Mapping[str, int]
) -> None:
  """Plots a panel; a variant's number selects its colour."""
  heading = intervals.heading(intervals.level_of(panel.rows))
  opened = is_open(panel.rows)
  for is_empty, (_, row) in zip(opened, panel.rows.iterrows(), strict=True):
    axes.errorbar(
      row[panel.column],
      row['accuracy %'],
      yerr=None if math.isnan(row[heading]) else row[heading],
      fmt='o',
      capsize=3,
      color=f'C{numbers[row["variant"]]}',
      fillstyle='none' if is_empty else 'full',
    )
  axes.set(xlabel=panel.column, ylabel='accuracy, %')
  axes.set_title(panel.ranking, parse_math=False)
  if OVER[panel.column]:
    axes.set_xscale('log')
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_formatter('')
  axes.xaxis.set_major_formatter('{x:g}')
  axes.margins(0.1)
  axes.grid(alpha=0.3)


def _by_variant(axes: axes_lib.Axes, table: pd.DataFrame) -> None:
  """Plots each variant's mean and interval, one row per variant.

  A line separates two rankings.
  """
  heading = intervals.heading(intervals.level_of(table))
  opened = is_open(table)
  for position, (_, row) in enumerate(table.iterrows()):
    axes.errorbar(
      row['accuracy %'],
      position,
      xerr=None if math.isnan(row[heading]) else row[heading],
      fmt='o',
      capsize=3,
      color='C0',
      fillstyle='none' if opened[position] else 'full',
    )
  ends = [len(part) for part in rankings.split(table).values()]
  for end in list(itertools.accumulate(ends))[:-1]:
    axes.axhline(end - 0.5, color='0.5', linewidth=0.8)
  axes.set_yticks(
    range(len(table)), names(table), fontsize='small', parse_math=False
  )
  axes.set(xlabel='accuracy, %', ylim=(max(len(table), 1) - 0.5, -0.5))
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
