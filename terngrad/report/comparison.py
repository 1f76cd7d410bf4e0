"""Runs beside each other: a table, and their curves."""

import os
from typing import NamedTuple

import pandas as pd
from matplotlib import figure

from terngrad import errors
from terngrad.training import records


class Run(NamedTuple):
  """The records of a run.

  Attributes:
    losses: `pandas.DataFrame`, those of training, at least one.
    scores: the same, those of evaluation.
  """

  losses: pd.DataFrame
  scores: pd.DataFrame


def read(folder):
  """Reads a run.

  Args:
    folder: path; holds the run's --train_dir as `train` and, where it was
      evaluated, its --eval_dir as `eval`.

  Returns:
    A `Run`.

  Raises:
    errors.ConfigError: there is no record of training.
  """
  trained = os.path.join(folder, 'train')
  losses = [r for r in records.read(trained) if 'total_loss' in r]
  if not losses:
    raise errors.ConfigError(
      f'{trained}: expected a {records.FILE_NAME} with losses, received none. '
      'Give the folder of a run that has begun.'
    )
  scores = records.read(os.path.join(folder, 'eval'))
  return Run(
    pd.DataFrame(losses),
    pd.DataFrame([r for r in scores if 'precision_at_1' in r]),
  )


def table(runs):
  """The newest numbers of runs.

  Args:
    runs: dict of name to `Run`.

  Returns:
    `pandas.DataFrame`, a row a run.
  """
  return pd.DataFrame(_row(name, *run) for name, run in runs.items())


def _row(name, losses, scores):
  last = losses.iloc[-1]
  row = {
    'gradients': name,
    'steps': int(last['step']),
    'seconds': round(last['seconds'], 1),
    'test accuracy': 'not evaluated',
    'bits/element sent': round(last['bits_per_element'], 2),
  }
  if len(scores):
    row['test accuracy'] = f'{scores.iloc[-1]["precision_at_1"]:.2%}'
  return row


def chart(runs):
  """Loss by step and, where there is any, test accuracy by step.

  Args:
    runs: dict of name to `Run`.

  Returns:
    `matplotlib.figure.Figure`.
  """
  evaluated = any(len(run.scores) > 1 for run in runs.values())
  # A figure without pyplot draws on no screen.
  page = figure.Figure(
    figsize=(12 if evaluated else 7, 4), dpi=120, layout='tight'
  )
  axes = page.subplots(1, 2 if evaluated else 1, squeeze=False)[0]
  for name, (losses, _) in runs.items():
    bits = losses['bits_per_element'].iloc[-1]
    axes[0].semilogy(
      losses['step'],
      losses['entropy_loss_smoothed'],
      label=f'{name}, {bits:.1f} bits/element',
    )
  axes[0].set_ylabel('training cross entropy, smoothed')
  if evaluated:
    for name, (_, scores) in runs.items():
      if len(scores):
        axes[1].plot(
          scores['step'], 100 * scores['precision_at_1'], 'o-', label=name
        )
    axes[1].set_ylabel('test accuracy, %')
  for axis in axes:
    axis.set_xlabel('step')
    axis.grid(alpha=0.3)
    axis.legend()
  return page
