"""Scores of runs after every epoch, and the steps until they are reached."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from terngrad import errors


class TargetScore(NamedTuple):
  """A score that training improves.

  Attributes:
    column: column of `curves.csv`.
    label: heading and axis, with the unit.
    is_falling: True if smaller is better.
  """

  column: str
  label: str
  is_falling: bool

  def is_reached(self, value: float, target: float) -> bool:
    """Whether a value is as good as the target; NaN never is."""
    return value <= target if self.is_falling else value >= target


SCORES = {
  score.column: score
  for score in (
    TargetScore('bits_per_byte', 'bits a byte', is_falling=True),
    TargetScore('loss', 'loss', is_falling=True),
    TargetScore('accuracy', 'accuracy', is_falling=False),
  )
}

# (step, score) by step.
Points = Sequence[tuple[float, float]]


def curves_of(
  rows: pd.DataFrame, score: TargetScore
) -> dict[tuple[str, int], list[tuple[float, float]]]:
  """Returns the points of each run, by (variant, seed).

  Args:
    rows: from `report.sweep.read_all_curves`.
    score: the score to read.

  Raises:
    errors.ConfigError: no run has this score.
  """
  columns = [name for name in SCORES if name in rows]
  if score.column not in columns or rows[score.column].isna().all():
    raise errors.ConfigError(
      f'metric: expected a score of the runs, such as '
      f'{" or ".join(columns) or "none"}, received {score.column!r}. Give '
      '--eval_subsets and --epoch_size in [flags] of sweep.ini, so that the '
      'runs are scored while they train.'
    )
  ordered = rows.sort_values('step', kind='stable')
  return {
    (str(variant), int(seed)): [
      (float(step), float(value))
      for step, value in zip(run['step'], run[score.column], strict=True)
    ]
    for (variant, seed), run in ordered.groupby(['variant', 'seed'], sort=False)
  }


def steps_until(points: Points, target: float, score: TargetScore) -> float:
  """Returns the step at which a run reaches a score for the first time.

  Between two scored epochs the score is taken as linear in the steps. If the
  first epoch reaches the target already, its step is an upper bound.

  Examples:
    >>> steps_until([(100, 3.0), (200, 2.0)], 2.5, SCORES['loss'])
    150.0

  Args:
    points: the run's scores.
    target: the score to reach, in the unit of the points.
    score: says whether smaller is better.

  Returns:
    Steps; infinity if the run never reaches the score.
  """
  before: tuple[float, float] | None = None
  for step, value in points:
    if score.is_reached(value, target):
      if before is None or math.isnan(before[1]):
        return step
      share = (before[1] - target) / (before[1] - value)
      return before[0] + share * (step - before[0])
    before = step, value
  return math.inf
