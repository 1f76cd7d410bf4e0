"""Measures losses, rates and times between two records and in an epoch."""

import math
import time
from collections.abc import Mapping
from collections.abc import Sequence
from datetime import datetime

import numpy as np
import tensorflow as tf

from terngrad.step import schedules
from terngrad.step import step as steps
from terngrad.training import metric
from terngrad.training import metrics

_SMOOTHING = 0.9
# Names of the means over an epoch.
_EPOCH_MEANS = metrics.EPOCH_LOSS.name, metrics.EPOCH_ACCURACY.name


class Meter:
  """Losses, rates and times between two records, and means of an epoch.

  The metrics of `metrics.TRAINING` are computed from the attributes.

  Attributes:
    epochs: converts steps to epochs.
    result: result of the last step.
    entropy: loss of the last step, mean over the workers.
    smoothed: exponential moving average of the losses, with factor 0.9.
    means: (loss, top-1 accuracy as a fraction): means over the steps of the
      epoch so far. Each example is scored when its gradient is computed.
    sec_per_batch: seconds per step, mean since the previous record.
    seconds: seconds of training, with those of earlier runs in the folder.
    num_elements: elements of a gradient.
    learning_rate: learning rate of the last step.
    regularization: sum of the L2 terms of the parameters after the last step.
    scaling: variables of `loss_scaling.NAMES`; () without a loss scale.
    arrivals: stale and dropped gradients; None if every step waits for all
      workers.
  """

  def __init__(
    self, epochs: schedules.Epochs, last: metrics.Record, step: int = 0
  ) -> None:
    """Starts the clock after `step` completed steps.

    `last` is the last record of a resumed run, or {}.
    """
    self.epochs = epochs
    self._step = self._recorded = step
    # Resumes the means of an epoch that has begun, if the record of this step
    # holds them.
    means = [last[n] for n in _EPOCH_MEANS if last.get(n) is not None]
    is_known = last.get('step') == step and len(means) == len(_EPOCH_MEANS)
    self.means: list[float] = means if is_known else [0.0, 0.0]
    self._counted = epochs.epoch_at(step).step if is_known and step else 0
    self._earlier_seconds = last.get(metrics.SECONDS.name) or 0.0
    self.smoothed: float | None = last.get(metrics.SMOOTHED.name)
    self._start = self._since = time.perf_counter()

  def add(self, result: steps.StepResult) -> None:
    """Adds the result of a step."""
    self._step += 1
    self.result = result
    numbers = result.entropy.numpy().mean(), result.accuracy.numpy().mean()
    values = np.array(numbers, np.float64)
    self.entropy = float(values[0])
    if self.epochs.epoch_at(self._step).step == 1:
      self.means, self._counted = [math.nan, math.nan], 0
    self._counted += 1
    # Running means of the finite values, which resume to the same bits.
    values[~np.isfinite(values)] = np.nan
    means = np.where(np.isnan(self.means), values, self.means)
    added = np.where(np.isnan(values), 0.0, values - means)
    self.means = (means + added / self._counted).tolist()
    if self.smoothed is None or not math.isfinite(self.smoothed):
      self.smoothed = self.entropy
    if math.isfinite(self.entropy):  # False if a scaled loss overflows
      self.smoothed += (1 - _SMOOTHING) * (self.entropy - self.smoothed)

  def exclude(self, seconds: float) -> None:
    """Excludes seconds since the last record that were not training."""
    self._since += seconds
    self._start += seconds

  def values(
    self,
    num_elements: int,
    learning_rate: float,
    regularization: float,
    scaling: Sequence[tf.Variable] = (),
    arrivals: metrics.Arrivals | None = None,
  ) -> dict[str, float]:
    """Computes the metrics of `metrics.TRAINING` that the run has, by name.

    The arguments become the attributes of the same names.
    """
    self.num_elements, self.learning_rate = num_elements, learning_rate
    self.regularization, self.scaling = regularization, scaling
    self.arrivals = arrivals
    now = time.perf_counter()
    self.sec_per_batch = (now - self._since) / (self._step - self._recorded)
    self.seconds = self._earlier_seconds + now - self._start
    self._since, self._recorded = now, self._step
    found = {m.name: m.compute(self) for m in metrics.TRAINING}
    return {name: value for name, value in found.items() if value is not None}


def log_line(step: int, values: Mapping[str, float]) -> str:
  """Formats the log line of a step: that of 2017, with bits per element."""
  losses, rates = (
    metric.texts(metrics.TRAINING, values, part)
    for part in ('line', 'brackets')
  )
  return (
    f'{datetime.now()}: step {step}, {", ".join(losses)} ({"; ".join(rates)})'
  )
