"""Stale gradients: which are applied, and with which learning rate.

The staleness of a gradient is the number of updates that were applied after its
worker pulled the parameters and before the gradient was applied; 0 if no other
worker was faster. The definition is that of arXiv:1511.05950, which also
divides the learning rate by it.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.training import metrics


class Rule(NamedTuple):
  """The treatment of stale gradients.

  Attributes:
    bound: largest staleness of an applied gradient; -1 for any. A staler
      gradient is dropped and its worker pulls the parameters: the work of one
      batch is lost and no other worker waits.
    scales: True divides the learning rate by 1 + staleness.
  """

  bound: int = -1
  scales: bool = False

  def applies(self, staleness: int) -> bool:
    """Returns False if a gradient of this staleness must be dropped."""
    return self.bound < 0 or staleness <= self.bound

  def learning_rate(
    self, learning_rate: tf.Tensor | float, staleness: int
  ) -> tf.Tensor | float:
    """Computes the learning rate of a gradient from that of the step."""
    return learning_rate / (1 + staleness) if self.scales else learning_rate


class Tally:
  """Counts applied and dropped gradients since the last record."""

  def __init__(self) -> None:
    """Starts with no gradients."""
    self._applied: list[int] = []
    self._dropped = 0

  def apply(self, staleness: int) -> None:
    """Counts an applied gradient."""
    self._applied.append(staleness)

  def drop(self) -> None:
    """Counts a dropped gradient."""
    self._dropped += 1

  def take(self) -> metrics.Arrivals:
    """Returns the counts and resets them."""
    arrivals = metrics.Arrivals(self._applied or [0], self._dropped)
    self._applied, self._dropped = [], 0
    return arrivals
