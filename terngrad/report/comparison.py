"""Several runs beside each other: a row of a table each, and their curves."""

import pandas as pd
from matplotlib import figure

from terngrad.training import metric
from terngrad.training import metrics


def of_table(table, found):
  """The records that hold metrics of a table.

  Args:
    table: of `metric.Metric`.
    found: list of records, from `records.read`.

  Returns:
    A pandas.DataFrame with a row a record.
  """
  names = {kind.name for kind in table}
  return pd.DataFrame([record for record in found if names & record.keys()])


def row(name, losses, scores):
  """What the table says of a run.

  Args:
    name: of the run.
    losses: its records of training, from `of_table`, at least one.
    scores: its records of evaluation, possibly none.

  Returns:
    dict of column to value.
  """
  values = {'gradients': name, 'steps': int(losses['step'].iloc[-1])}
  columns = [
    (*pair, found, missing)
    for table, found, missing in (
      (metrics.EVALUATION, scores, 'not evaluated'),
      (metrics.TRAINING, losses, 'not recorded'),
    )
    for pair in metric.entries(table, 'column')
  ]
  for kind, column, found, missing in sorted(
    columns, key=lambda one: not one[1].first
  ):
    values[column.label] = (
      column.show(found[kind.name].iloc[-1]) if kind.name in found else missing
    )
  return values


def draw(trained, scored, path):
  """Draws the runs' curves; of evaluation only where one has two points.

  Args:
    trained: dict of name to records of training, from `of_table`.
    scored: the same of evaluation.
    path: of the PNG to write.
  """
  sent = metrics.SENT.name
  named = {
    f'{name}, {losses[sent].iloc[-1]:.1f} bits/element': losses
    for name, losses in trained.items()
  }
  compared = [
    (*pair, named, '-') for pair in metric.entries(metrics.TRAINING, 'compared')
  ]
  if any(len(scores) > 1 for scores in scored.values()):
    compared += [
      (*pair, scored, 'o-')
      for pair in metric.entries(metrics.EVALUATION, 'compared')
    ]
  # A figure without pyplot draws on no screen.
  page = figure.Figure(figsize=(2 + 5 * len(compared), 4))
  all_axes = page.subplots(1, len(compared), squeeze=False)[0]
  for axes, (kind, drawn, runs, style) in zip(all_axes, compared, strict=True):
    for name, found in runs.items():
      if kind.name in found:
        values = drawn.factor * found[kind.name]
        axes.plot(found['step'], values, style, label=name)
    if drawn.axes.logarithmic:
      axes.set_yscale('log')
    axes.set_ylabel(drawn.axes.title)
    axes.set_xlabel('step')
    axes.grid(alpha=0.3)
    axes.legend()
  page.tight_layout()
  page.savefig(path, dpi=120)
