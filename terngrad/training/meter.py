"""What the loop measures: between two records, and in an epoch."""

import math
import time
from collections.abc import Mapping
from collections.abc import Sequence
from datetime import datetime

import tensorflow as tf

from terngrad.step import schedules
from terngrad.step import step as steps
from terngrad.training import metric
from terngrad.training import metrics

_SMOOTHING = 0.9
# What is measured of an epoch.
_OF_EPOCH = metrics.EPOCH_LOSS.name, metrics.EPOCH_ACCURACY.name


class Meter:
  """Losses, rates and times between two records, and means of an epoch.

  Metrics are computed from its attributes; "last" is the last step.

  Attributes:
    epochs: of the run.
    result: of the last.
    entropy: loss of the last, mean over the workers.
    smoothed: mean of the losses of all steps, in which later ones count more.
    means: of the steps of the epoch so far: the loss, and the top-1 accuracy,
      as a share, of the same examples, each as it was when its gradient was
      computed.
    sec_per_batch: seconds a step, mean since the record before.
    seconds: of training, in all runs of the folder.
    num_elements: see `values`, as are those that follow.
    learning_rate: of the last.
    regularization: L2 terms of the parameters after the last.
    scaling: variables of `loss_scaling.NAMES`; () without a loss scale.
    arrivals: None where every step waits for all.
  """

  def __init__(
    self, epochs: schedules.Epochs, last: metrics.Record, step: int = 0
  ) -> None:
    """Starts the clock.

    Args:
      epochs: of the run.
      last: the last record of the run that continues, or {}.
      step: steps taken before.
    """
    self.epochs = epochs
    self._step = self._recorded = step
    # Of the epoch that the next step is of, where it is not its first: means of
    # its steps until then, as far as that is on record.
    means = [last[n] for n in _OF_EPOCH if last.get(n) is not None]
    is_known = last.get('step') == step and len(means) == len(_OF_EPOCH)
    self.means: list[float] = means if is_known else [0.0, 0.0]
    self._counted = epochs.of(step).step if is_known and step else 0
    self._before = last.get(metrics.SECONDS.name) or 0.0
    self.smoothed: float | None = last.get(metrics.SMOOTHED.name)
    self._start = self._since = time.perf_counter()

  def add(self, result: steps.StepResult) -> None:
    """Takes in what a step tells."""
    self._step += 1
    self.result = result
    self.entropy, accuracy = (
      float(numbers.numpy().mean())
      for numbers in (result.entropy, result.accuracy)
    )
    if self.epochs.of(self._step).step == 1:
      self.means, self._counted = [0.0, 0.0], 0
    self._counted += 1
    self.means = [
      # Goes on to the same bits from what is on record.
      mean + (value - mean) / self._counted
      for mean, value in zip(self.means, (self.entropy, accuracy), strict=True)
    ]
    if self.smoothed is None:
      self.smoothed = self.entropy
    if math.isfinite(self.entropy):  # not where a scaled loss overflows
      self.smoothed += (1 - _SMOOTHING) * (self.entropy - self.smoothed)

  def leave_out(self, seconds: float) -> None:
    """Leaves time since the last record that was no training out of it."""
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
    """What to record now, of all of `metrics.TRAINING` that the run has.

    Args:
      num_elements: of a gradient, for the bits an element.
      learning_rate: of the last step.
      regularization: the L2 terms of the parameters after the last step.
      scaling: variables of the loss scale, or ().
      arrivals: what came late, where a step does not wait for all.
    """
    self.num_elements, self.learning_rate = num_elements, learning_rate
    self.regularization, self.scaling = regularization, scaling
    self.arrivals = arrivals
    now = time.perf_counter()
    self.sec_per_batch = (now - self._since) / (self._step - self._recorded)
    self.seconds = self._before + now - self._start
    self._since, self._recorded = now, self._step
    found = {m.name: m.compute(self) for m in metrics.TRAINING}
    return {name: value for name, value in found.items() if value is not None}


def log_line(step: int, values: Mapping[str, float]) -> str:
  """The 2017 line of a step, with the bits that were sent."""
  losses, rates = (
    metric.texts(metrics.TRAINING, values, part)
    for part in ('line', 'brackets')
  )
  return (
    f'{datetime.now()}: step {step}, {", ".join(losses)} ({"; ".join(rates)})'
  )
