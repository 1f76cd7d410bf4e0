"""Confidence intervals: over the seeds, and of a finite test set."""

import math
from collections.abc import Sequence
from fractions import Fraction

import pandas as pd

# Student's t for 95 %, two-sided, by degrees of freedom from 1.
# Student, The Probable Error of a Mean, Biometrika 6 (1908), as tabulated.
_T = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
# The same quantile of the normal distribution.
_NORMAL = 1.959964
# Sizes of test sets that accuracies can reveal.
_FEWEST, _MOST = 100, 1_000_000


def interval(values: pd.Series) -> tuple[float, float, float]:
  """Returns (mean, standard deviation, half width of the mean's 95 % interval).

  Rounds to 9 decimals, so differences that are 0 up to floating-point error
  become 0. Leaves out numbers that are not finite or above 1e100.
  """
  values = values[values.abs() < 1e100]
  count = len(values)
  mean = float(values.mean()) if count else math.nan
  if count < 2:
    return mean, math.nan, math.nan
  deviation = float(values.std(ddof=1))
  half = _t(count - 1) * deviation / math.sqrt(count)
  return round(mean, 9), round(deviation, 9), round(half, 9)


def _t(degrees: int) -> float:
  """Returns the two-sided 95 % quantile of Student's t distribution.

  Beyond the table it uses Abramowitz and Stegun, Handbook of Mathematical
  Functions (1964), 26.7.5: accurate to 0.0005 from 11 degrees of freedom.
  """
  if degrees <= len(_T):
    return _T[degrees - 1]
  x = _NORMAL
  first = (x**3 + x) / 4
  second = (5 * x**5 + 16 * x**3 + 3 * x) / 96
  third = (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384
  return x + first / degrees + second / degrees**2 + third / degrees**3


def sampling_error(accuracy: float, examples: int) -> float:
  """Returns the half width of the 95 % interval of a score on a test set.

  The examples are taken as independent draws, and the number of correct ones as
  binomial, in its normal approximation.

  Args:
    accuracy: share of correct examples, in [0, 1].
    examples: number of examples of the test set.
  """
  return _NORMAL * math.sqrt(accuracy * (1 - accuracy) / examples)


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
