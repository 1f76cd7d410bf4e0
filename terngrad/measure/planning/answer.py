"""Texts of a plan's answer: its table and its errors."""

from collections.abc import Sequence

import pandas as pd

from terngrad.measure.planning import accuracy
from terngrad.measure.planning import parameters as parameters_lib
from terngrad.measure.planning import ranking


def describe_table(table: pd.DataFrame) -> str:
  """Returns the table and what its columns mean.

  Args:
    table: from `ranking.with_accuracy`.
  """
  # The computing is the same for all codes.
  columns = ['computing s']
  if not table['hidden s'].any():
    columns.append('hidden s')
  lines = [
    _text(table.drop(columns=columns)),
    f"'=': as fast as the first code, within {ranking.TOLERANCE:.0%} (a plan's "
    'usual error) or within the noise of both; ± s: half the interquartile '
    'range of the coding',
  ]
  lines += [
    f'{sweep.heading}: test accuracy minus that of float32, ± its 95 % '
    f'interval; {sweep.setting} (experiments/{folder})'
    for folder, sweep in accuracy.SWEEPS.items()
  ]
  return '\n'.join(lines)


def describe_errors(
  parameters: parameters_lib.Parameters,
  measured: Sequence[parameters_lib.MeasuredSeconds],
  shapes: Sequence[tuple[int, ...]],
) -> str:
  """Returns predicted and measured steps, with the median and worst error.

  Args:
    parameters: as for `parameters.compare`.
    measured: at least one step.
    shapes: as for `parameters.compare`.
  """
  table = parameters_lib.compare(parameters, measured, shapes)
  magnitudes = table['error'].abs()
  worst = table.loc[magnitudes.idxmax()]
  return (
    f'{_text(table)}\n'
    f'median error {magnitudes.median():.1%}; the worst '
    f'{worst["error"]:+.1%}, of {worst["codec"]} at {worst["Mbit/s"]:g} Mbit/s'
  )


def _text(table: pd.DataFrame) -> str:
  return table.to_string(index=False, float_format='{:.4g}'.format)
