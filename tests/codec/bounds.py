"""How far a sample may stray from its law: derived bounds, no tolerances.

Every bound holds with probability 1 - 1e-9 for all `comparisons` of a test
together (Bonferroni). Seeds are fixed, so that a test which passed once passes
always; the small probability is what makes a failure mean a defect.
"""

import math

import hypothesis

FAMILY_WISE = 1e-9

# For property tests: the same examples every time, and no file of old ones.
few_examples = hypothesis.settings(
  database=None, deadline=None, derandomize=True, max_examples=12
)


def bernstein(variance, largest, comparisons):
  """Bound on |sum - its mean| of independent terms (Bernstein's inequality).

  Solves t**2 / (2 * (V + M * t / 3)) = ln(2 / probability) for t. For sums of
  many terms it is the normal distribution's bound within a tenth, and unlike
  that it holds for rare events too.

  Args:
    variance: V, of the sum; float or array.
    largest: M, bound on one term's distance from its mean.
    comparisons: how many bounds the test compares with.

  Returns:
    t, of the kind of `variance`.
  """
  rate = _rate(comparisons)
  linear = largest * rate / 3
  return linear + (linear**2 + 2 * rate * variance) ** 0.5


def chi_square(degrees, comparisons):
  """Lower and upper bound on chi-square (Laurent and Massart 2000, lemma 1)."""
  rate = _rate(comparisons)
  spread = 2 * math.sqrt(degrees * rate)
  return degrees - spread, degrees + spread + 2 * rate


def _rate(comparisons):
  return math.log(2 * comparisons / FAMILY_WISE)
