"""Finds the best epoch of a run, and when to stop for lack of a better one."""

import math
from collections.abc import Iterable

from terngrad.training import metrics

# Metrics of `metrics.EVALUATION` by name of --keep_best, with the sign that
# makes the best value the largest.
_METRICS = {'accuracy': ('precision_at_1', 1), 'loss': ('loss', -1)}


class BestEpoch:
  """The best epoch so far, by a score of one subset.

  Attributes:
    name: name of the score in the records.
    step: last step of the best epoch; 0 if no epoch was scored.
    is_new: whether the newest epoch is better than all before.
  """

  def __init__(
    self,
    wanted: str,
    subset: str,
    patience: int,
    records: Iterable[metrics.Record],
  ) -> None:
    """Reads the scores of the epochs before.

    Args:
      wanted: 'accuracy' or 'loss'.
      subset: name of the scored subset.
      patience: number of epochs without a better one after which the run stops;
        0 for never.
      records: the records of the run so far.
    """
    kind, self._sign = _METRICS[wanted]
    (found,) = (one for one in metrics.EVALUATION if one.name == kind)
    self.name = metrics.epoch_name(subset, found)
    self._patience = patience
    self._best = -math.inf
    self._since = 0
    self.step = 0
    self.is_new = False
    for record in records:
      # Epochs that were not scored do not count.
      if self.name in record:
        self.add(record)

  def add(self, record: metrics.Record) -> None:
    """Adds the scores of an epoch; one that is not finite is never the best.

    `record` also has the last 'step' of the epoch.
    """
    value = record[self.name]
    # Records hold None for NaN, which is larger than nothing.
    signed = math.nan if value is None else self._sign * value
    self.is_new = signed > self._best
    if self.is_new:
      self._best, self._since = signed, 0
      self.step = int(record['step'])
    else:
      self._since += 1

  @property
  def is_over(self) -> bool:
    """Whether `patience` epochs have passed without a better one."""
    return 0 < self._patience <= self._since
