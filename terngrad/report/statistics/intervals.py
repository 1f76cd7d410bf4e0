"""Confidence intervals: over the seeds, and of a finite test set."""

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import pandas as pd

from terngrad import lazy
from terngrad.report.statistics import sweep_rules

if TYPE_CHECKING:
  from scipy import stats
else:
  # Imports in half a second.
  stats = lazy.module('scipy.stats')

LEVEL = sweep_rules.DEFAULT.level
# Sizes of test sets that accuracies can reveal.
_FEWEST, _MOST = 100, 1_000_000


def heading(level: float) -> str:
  """Returns the heading of half widths: '95 %'."""
  return f'{level:g} %'


def level_of(table: pd.DataFrame) -> float:
  """Returns the level of a summary's intervals, whose column follows `sd`."""
  text = table.columns[list(table.columns).index('sd') + 1]
  return float(text.removesuffix(' %'))


def interval(
  values: pd.Series, level: float = LEVEL
) -> tuple[float, float, float]:
  """Returns (mean, standard deviation, half width of the mean's interval).

  The level of the interval is in %. Rounds to 9 decimals, so differences that
  are 0 up to floating-point error become 0. Leaves out numbers that are not
  finite or above 1e100.
  """
  values = values[values.abs() < 1e100]
  count = len(values)
  mean = float(values.mean()) if count else math.nan
  if count < 2:
    return mean, math.nan, math.nan
  deviation = float(values.std(ddof=1))
  half = _t(count - 1, level) * deviation / math.sqrt(count)
  return round(mean, 9), round(deviation, 9), round(half, 9)


def _t(degrees: int, level: float) -> float:
  """Returns the two-sided quantile of Student's t distribution.

  It has four digits, as printed tables have, so that reports do not depend on
  the version of SciPy.
  """
  return float(f'{stats.t.ppf(upper(level), degrees):.4g}')


def upper(level: float) -> float:
  """Returns the probability below an interval's upper end: 0.975 for 95 %."""
  return (100 + level) / 200


def normal(level: float) -> float:
  """Returns the two-sided quantile of the normal distribution."""
  return statistics.NormalDist().inv_cdf(upper(level))


def sampling_error(
  accuracy: float, examples: int, level: float = LEVEL
) -> float:
  """Returns the half width of the interval of a score on a test set.

  The examples are taken as independent draws, and the number of correct ones as
  binomial, in its normal approximation.

  Args:
    accuracy: share of correct examples, in [0, 1].
    examples: number of examples of the test set.
    level: of the interval, in %.
  """
  return normal(level) * math.sqrt(accuracy * (1 - accuracy) / examples)


def count_examples(accuracies: Sequence[float]) -> int | None:
  """Finds the size of the test set of which accuracies are shares.

  Every accuracy is a multiple of 1 / size, so the size is a multiple of the
  result; with tens of accuracies it is almost surely the result.

  Returns:
    The least common denominator, or None if it is below 100, where chance
    decides, or above a million, where the accuracies are no such shares.
  """
  size = 1
  for accuracy in accuracies:
    if not 0 <= accuracy <= 1:
      return None
    share = Fraction(accuracy).limit_denominator(_MOST)
    if abs(share - Fraction(accuracy)) > 1e-15:
      return None
    size = math.lcm(size, share.denominator)
    if size > _MOST:
      return None
  return size if size >= _FEWEST else None
