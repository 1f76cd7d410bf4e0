"""How the runs of a sweep are compared in its report."""

from typing import NamedTuple

# The lowest and the highest level that a report accepts, in %.
LEVELS = 50.0, 99.99


class SweepRules(NamedTuple):
  """The level of a report's intervals, and what its rankings separate.

  Attributes:
    level: confidence level of the intervals, in %.
    has_searched_rates: True if learning rates were searched for each variant.
      Then variants of one ranking may have different ones.
  """

  level: float = 95.0
  has_searched_rates: bool = False


DEFAULT = SweepRules()
