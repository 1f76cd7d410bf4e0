"""Comparison of runs: a table and their curves."""

import math
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import pandas as pd
from matplotlib import figure

from terngrad import errors
from terngrad.checkpoint import folder as run_folder
from terngrad.training import metric
from terngrad.training import metrics
from terngrad.training import records

# Entry of a run without a score that others have.
_NOT_EVALUATED = 'not evaluated'
# Entry of a value that is NaN, infinite or null.
_NOT_FINITE = 'not finite'


class RunRecords(NamedTuple):
  """The records of a run.

  Attributes:
    losses: records of training, one per row; at least one.
    scores: records of evaluation, one per row.
  """

  losses: pd.DataFrame
  scores: pd.DataFrame


class FoundRun(NamedTuple):
  """A run, and its records as they were logged.

  Attributes:
    train_dir: path of its --train_dir.
    losses: records of training; at least one holds a loss.
    scores: records of evaluation.
  """

  train_dir: str
  losses: list[metrics.Record]
  scores: list[metrics.Record]


def find(folder: str) -> FoundRun:
  """Finds a run and reads its records.

  Args:
    folder: path of the run's --train_dir, or of the directory that holds it as
      `train`. The --eval_dir is expected as `eval` in that directory, or beside
      a --train_dir named `train`.

  Raises:
    errors.ConfigError: there is no run, or it has no record of training.
  """
  trained = run_folder.find_run(folder, 'runs')
  losses = records.read(trained)
  names = {kind.name for kind in metrics.TRAINING}
  if not any(names & record.keys() for record in losses):
    raise errors.ConfigError(
      f'{trained}: expected a {records.FILE_NAME} with losses, received none. '
      'Pass the folder of a run that has logged a step.'
    )
  scores = records.read(os.path.join(folder, 'eval'))
  above, name = os.path.split(os.path.abspath(trained))
  if not scores and name == 'train':
    scores = records.read(os.path.join(above, 'eval'))
  return FoundRun(trained, losses, scores)


def read(folder: str) -> RunRecords:
  """Reads the records of a run, with the arguments and errors of `find`."""
  found = find(folder)
  return RunRecords(
    _of_table(metrics.TRAINING, found.losses),
    _of_table(metrics.evaluated(), found.scores),
  )


def _of_table(
  table: Sequence[metric.Metric], found: Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
  """Returns the records that hold metrics of a table, one per row."""
  names = {kind.name for kind in table}
  return pd.DataFrame([record for record in found if names & record.keys()])


def table(runs: Mapping[str, RunRecords]) -> pd.DataFrame:
  """Returns the newest values of each run, one run per row."""
  rows = [_row(name, *run) for name, run in runs.items()]
  # Some runs have no score that others have.
  columns = dict.fromkeys(name for row in rows for name in row)
  return pd.DataFrame(
    [{n: row.get(n, _NOT_EVALUATED) for n in columns} for row in rows]
  )


def _row(
  name: str, losses: pd.DataFrame, scores: pd.DataFrame
) -> dict[str, Any]:
  values = {'gradients': name, 'steps': int(losses['step'].iloc[-1])}
  columns = [
    (*pair, found, missing)
    for kinds, found, missing in (
      (metrics.evaluated(), scores, _NOT_EVALUATED),
      (metrics.TRAINING, losses, 'not recorded'),
    )
    for pair in metric.entries(kinds, 'column')
    # Tables of runs on images have no columns for text.
    if pair[0] not in metrics.TEXT or pair[0].name in found
  ]
  for kind, column, found, missing in sorted(
    columns, key=lambda one: not one[1].first
  ):
    values[column.label] = (
      _shown(column, found[kind.name].iloc[-1])
      if kind.name in found
      else missing
    )
  return values


def _shown(column: metric.CellFormat, value: Any) -> object:
  """Returns the entry of a value; records have null for NaN and infinity."""
  try:
    return column.show(value) if math.isfinite(value) else _NOT_FINITE
  except (OverflowError, TypeError):
    return _NOT_FINITE


def _label(name: str, run: RunRecords) -> str:
  """Returns a run's name with its bits per element, if it recorded them."""
  sent = metrics.SENT.name
  bits = run.losses[sent].iloc[-1] if sent in run.losses else None
  # Records have null for NaN and infinity.
  return f'{name}, {bits:.1f} bits/element' if pd.notna(bits) else name


def chart(runs: Mapping[str, RunRecords]) -> figure.Figure:
  """Plots the runs' curves; evaluation only if a run has several scores."""
  trained = {_label(*item): item[1].losses for item in runs.items()}
  scored = {name: run.scores for name, run in runs.items()}
  compared = [
    (*pair, trained, '-')
    for pair in metric.entries(metrics.TRAINING, 'compared')
  ]
  if any(len(scores) > 1 for scores in scored.values()):
    compared += [
      (*pair, scored, 'o-')
      for pair in metric.entries(metrics.evaluated(), 'compared')
      if any(pair[0].name in scores for scores in scored.values())
    ]
  # A figure made without pyplot needs no display.
  page = figure.Figure(
    figsize=(2 + 5 * len(compared), 4), dpi=120, layout='tight'
  )
  all_axes = page.subplots(1, len(compared), squeeze=False)[0]
  for axes, (kind, drawn, found, style) in zip(all_axes, compared, strict=True):
    for name, rows in found.items():
      if kind.name in rows:
        values = drawn.factor * rows[kind.name]
        axes.plot(rows['step'], values, style, label=name)
    if drawn.axes.logarithmic:
      axes.set_yscale('log')
    axes.set(xlabel='step', ylabel=drawn.axes.title)
    axes.grid(alpha=0.3)
    for text in axes.legend().get_texts():
      text.set_parse_math(False)
  return page
