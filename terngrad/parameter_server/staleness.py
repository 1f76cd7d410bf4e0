"""What becomes of a gradient that comes late.

The staleness of a gradient is the number of updates that were applied after
its worker had pulled the parameters and before its code was applied: 0 where
nobody was faster. It is as in arXiv:1511.05950, which also divides the
learning rate by it.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.training import metrics


class Rule(NamedTuple):
  """What is done with a gradient of some staleness.

  Attributes:
    bound: largest staleness that is applied; -1 for any. A later gradient is
      dropped and its worker pulls: it loses one batch's work and nobody waits.
    scales: True divides the learning rate by 1 + staleness.
  """

  bound: int = -1
  scales: bool = False

  def applies(self, staleness: int) -> bool:
    """False where a gradient is to be dropped."""
    return self.bound < 0 or staleness <= self.bound

  def learning_rate(
    self, rate: tf.Tensor | float, staleness: int
  ) -> tf.Tensor | float:
    """The learning rate of a gradient, from that of its step."""
    return rate / (1 + staleness) if self.scales else rate


class Tally:
  """Counts what came since the last record."""

  def __init__(self) -> None:
    """Nothing has come."""
    self._applied: list[int] = []
    self._dropped = 0

  def apply(self, staleness: int) -> None:
    """Counts a gradient that was applied."""
    self._applied.append(staleness)

  def drop(self) -> None:
    """Counts a gradient that was dropped."""
    self._dropped += 1

  def take(self) -> metrics.Arrivals:
    """What is to be recorded; the count begins again."""
    arrivals = metrics.Arrivals(self._applied or [0], self._dropped)
    self._applied, self._dropped = [], 0
    return arrivals
