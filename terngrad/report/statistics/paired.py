"""Compares many variants with one baseline, seed by seed.

A difference has three measures of its uncertainty. The interval of its own
seeds assumes nothing of other variants, but with three seeds its width is
mostly chance. The pooled interval estimates one deviation from all variants of
the baseline, and assumes that they spread alike. Dunnett's p-value also counts
that many variants were compared with the same runs of the baseline.
"""

import math
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import numpy as np
import pandas as pd

from terngrad import lazy
from terngrad.report.statistics import intervals

if TYPE_CHECKING:
  from scipy import stats
else:
  # Imports in half a second.
  stats = lazy.module('scipy.stats')

# Columns of `compare`; the first two end with the heading of intervals.
SINGLE, POOLED, DUNNETT = 'its ', 'pooled ', 'Dunnett p'
# SciPy's integrals of many dimensions have errors up to 0.0003.
_DIGITS = 3


def without_lost(
  baselines: Mapping[str, str], lost: Collection[str]
) -> dict[str, str]:
  """Returns the baselines of variants that, as theirs, lost no run.

  A mean over the runs that did not fail is no mean of the setting.
  """
  return {
    variant: baseline
    for variant, baseline in baselines.items()
    if variant not in lost and baseline not in lost
  }


def compare(
  accuracy: pd.DataFrame,
  baselines: Mapping[str, str],
  level: float = intervals.LEVEL,
) -> dict[str, dict[str, Any]]:
  """Compares variants with their baselines over common seeds.

  Args:
    accuracy: in %, one row per seed, one column per variant, NaN where a
      variant lacks a seed.
    baselines: maps variants to their baselines, both columns of `accuracy`.
    level: of the intervals, in %.

  Returns:
    For each variant the mean difference in percentage points and the columns
    `SINGLE`, `POOLED` (half widths of intervals, in points), `DUNNETT`, and if
    there are several baselines, the name of its baseline. NaN where the seeds
    are too few, and for a baseline that is compared with itself.
  """
  found = {}
  named = len({*baselines.values()}) > 1
  heading = intervals.heading(level)
  accuracy = accuracy.where(accuracy.abs() < 1e100)
  for baseline in dict.fromkeys(baselines.values()):
    names = [name for name in accuracy if baselines.get(name) == baseline]
    differences = accuracy[names].sub(accuracy[baseline], axis=0)
    others = differences.drop(columns=baseline, errors='ignore')
    halves, p = _pooled(accuracy[[baseline, *others]], others, level)
    for name in names:
      mean, _, half = intervals.interval(differences[name].dropna(), level)
      found[name] = {
        'to its baseline' if named else f'to {baseline}': mean,
        SINGLE + heading: half,
        POOLED + heading: halves.get(name, math.nan),
        DUNNETT: p.get(name, math.nan),
        **({'baseline': baseline} if named else {}),
      }
  return found


def _pooled(
  accuracy: pd.DataFrame, differences: pd.DataFrame, level: float
) -> tuple[dict[str, float], dict[str, float]]:
  """Returns the half widths and the p-values of variants by their names."""
  seeds = differences.notna()
  counts = seeds.sum()
  names = list(counts.index[counts > 0])
  deviation, degrees = difference_deviation(accuracy)
  if not names or not degrees:
    return {}, {}
  errors = deviation / np.sqrt(counts[names].to_numpy())
  half = stats.t.ppf(intervals.upper(level), degrees) * errors
  halves = {n: round(float(h), 9) for n, h in zip(names, half, strict=True)}
  if not deviation:
    return halves, {}
  used = seeds[names].to_numpy(float)
  roots = np.sqrt(np.outer(counts[names], counts[names]))
  # Two differences share the baseline's runs of their common seeds.
  correlation = used.T @ used / roots / 2
  np.fill_diagonal(correlation, 1)
  p = p_values(
    differences[names].mean().to_numpy() / errors, correlation, degrees
  )
  return halves, dict(zip(names, p, strict=True))


def difference_deviation(accuracy: pd.DataFrame) -> tuple[float, int]:
  """Estimates the deviation of a paired difference from all variants.

  An accuracy is the sum of a term of its variant, a term of its seed, and an
  error; all errors have the same variance. Its estimate is the mean square of
  the residuals, and a difference of two accuracies has twice this variance. The
  mean of the differences' own variances would count the errors of the baseline
  once for every variant.

  Args:
    accuracy: one row per seed, one column per variant; NaN where one lacks.

  Returns:
    The deviation, in the unit of `accuracy`, and its degrees of freedom. NaN
    and 0 if nothing is left to estimate it from.

  References:
    Scheffe, The Analysis of Variance, Wiley 1959, chapter 4 (two-way layout
    with one observation per cell).
  """
  values = accuracy.to_numpy(float)
  seeds, variants = np.nonzero(~np.isnan(values))
  terms = np.hstack(
    [np.eye(values.shape[1])[variants], np.eye(values.shape[0])[seeds]]
  )
  observed = values[seeds, variants]
  fitted, _, rank, _ = np.linalg.lstsq(terms, observed)
  degrees = len(observed) - int(rank)
  if degrees < 1:
    return math.nan, 0
  residuals = observed - terms @ fitted
  return round(math.sqrt(2 * residuals @ residuals / degrees), 9), degrees


def p_values(
  ratios: Sequence[float], correlation: np.ndarray, degrees: int
) -> list[float]:
  """Computes Dunnett's two-sided p-values.

  The p-value of a variant is the probability that, if no variant differs from
  the baseline, the largest ratio of all variants is at least its ratio.

  Args:
    ratios: of the mean differences to their standard errors.
    correlation: of the mean differences, [variants, variants].
    degrees: degrees of freedom of the standard errors.

  Returns:
    p-values, rounded to three decimals: 0 is below 0.0005.

  References:
    Dunnett, A multiple comparison procedure for comparing several treatments
    with a control, JASA 50 (1955).
  """
  if len(ratios) == 1:
    return [round(2 * float(stats.t.sf(abs(ratios[0]), degrees)), _DIGITS)]
  found = {}
  for ratio in {round(abs(float(r)), 9) for r in ratios}:
    limit = np.full(len(ratios), ratio)
    within = stats.multivariate_t.cdf(
      limit,
      shape=correlation,
      df=degrees,
      lower_limit=-limit,
      random_state=np.random.default_rng(0),
    )
    found[ratio] = round(min(max(1 - float(within), 0), 1), _DIGITS)
  return [found[round(abs(float(r)), 9)] for r in ratios]
