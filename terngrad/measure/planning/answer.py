"""Texts of a plan's answer: its table and its errors."""

from collections.abc import Sequence

import pandas as pd

from terngrad.measure.planning import accuracy
from terngrad.measure.planning import model
from terngrad.measure.planning import parameters as parameters_lib
from terngrad.measure.planning import ranking


def add_hours(
  table: pd.DataFrame, examples: float, examples_per_step: int
) -> pd.DataFrame:
  """Adds the hours of training with a number of examples.

  Args:
    table: from `model.table`.
    examples: examples of all workers together.
    examples_per_step: those that all workers take in one step.
  """
  steps = examples / examples_per_step
  hours = steps * table[model.STEP] / 3600
  return table.assign(**{f'hours to {examples:g} examples': hours})


def describe_table(table: pd.DataFrame, local_steps: int = 1) -> str:
  """Returns the table and what its columns mean.

  Args:
    table: from `ranking.with_accuracy`.
    local_steps: as for `model.plan`. With more than 1 the table has no
      accuracies: the sweeps exchanged in every step.
  """
  # The computing is the same for all codes.
  columns = ['computing s']
  if not table['hidden s'].any():
    columns.append('hidden s')
  if local_steps > 1:
    columns += [sweep.heading for sweep in accuracy.SWEEPS.values()]
  else:
    columns += [model.WAITING, model.ENOUGH]
  lines = [
    _text(table.drop(columns=columns)),
    f"'=': as fast as the first code, within {ranking.TOLERANCE:.0%} (a plan "
    'does not order closer codes) or within the noise of both; ± s: half the '
    'interquartile range of the coding',
  ]
  if local_steps > 1:
    lines.append(
      f'seconds of one of {local_steps} local steps and its share of an '
      f'exchange; {model.WAITING}: the share of this time that is coding and '
      'transfer'
    )
    return '\n'.join(lines)
  lines += [
    f'{sweep.heading}: test accuracy minus that of float32, ± its 95 % '
    f'interval; {sweep.setting} (experiments/{folder})'
    for folder, sweep in accuracy.SWEEPS.items()
  ]
  return '\n'.join(lines)


def describe_waiting(table: pd.DataFrame, text: str) -> str:
  """Says how many local steps keep waiting low, if a code needs any.

  Args:
    table: from `model.table`.
    text: the code.

  Returns:
    A sentence; '' if it is not known, or waiting is low without local steps.
  """
  row = table.set_index('codec').loc[text]
  if pd.isna(enough := row[model.ENOUGH]) or enough == 1:
    return ''
  return (
    f'{text}: coding and transfer take {row[model.WAITING]:.0%} of the time, '
    f'below 10 % with --local_steps={int(enough)} or more (docs/local_steps.md)'
  )


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
