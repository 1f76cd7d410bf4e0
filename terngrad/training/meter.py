"""What the loop measures: between two records, and in an epoch."""

import math
import time
from datetime import datetime

from terngrad.training import metric
from terngrad.training import metrics

_SMOOTHING = 0.9
# What is measured of an epoch.
_OF_EPOCH = metrics.EPOCH_LOSS.name, metrics.EPOCH_ACCURACY.name


class Meter:
  """Losses, rates and times between two records, and means of an epoch."""

  def __init__(self, epochs, last, step=0):
    """Starts the clock.

    Args:
      epochs: `schedules.Epochs` of the run.
      last: the last record of the run that continues, or {}.
      step: steps taken before.
    """
    self._epochs = epochs
    self._step = step
    # Of the epoch that the next step is of, where it is not its first: means of
    # its steps until then, as far as that is on record.
    is_known = last.get('step') == step and None not in (
      last.get(name) for name in _OF_EPOCH
    )
    self._means = [last[n] for n in _OF_EPOCH] if is_known else [0.0, 0.0]
    self._counted = epochs.of(step).step if is_known and step else 0
    self._before = last.get(metrics.SECONDS.name) or 0.0
    self._smoothed = last.get(metrics.SMOOTHED.name)
    self._start = self._since = time.perf_counter()
    self._steps = 0
    self._result = None
    self._entropy = 0.0

  def add(self, result):
    """Takes in the `step.StepResult` of a step."""
    self._steps += 1
    self._step += 1
    self._result = result
    self._entropy = float(result.entropy.numpy().mean())
    accuracy = float(result.accuracy.numpy().mean())
    if self._epochs.of(self._step).step == 1:
      self._means, self._counted = [0.0, 0.0], 0
    self._counted += 1
    self._means = [
      # Goes on to the same bits from what is on record.
      mean + (value - mean) / self._counted
      for mean, value in zip(
        self._means, (self._entropy, accuracy), strict=True
      )
    ]
    if self._smoothed is None:
      self._smoothed = self._entropy
    if math.isfinite(self._entropy):  # not where a scaled loss overflows
      self._smoothed += (1 - _SMOOTHING) * (self._entropy - self._smoothed)

  def leave_out(self, seconds):
    """Leaves time since the last record that was no training out of it."""
    self._since += seconds
    self._start += seconds

  def values(
    self, num_elements, learning_rate, regularization, scaling=(), arrivals=None
  ):
    """What to record now; see `metrics.Measured`.

    Args:
      num_elements: of a gradient, for the bits an element.
      learning_rate: of the last step.
      regularization: the L2 terms of the parameters after the last step.
      scaling: variables of the loss scale, or ().
      arrivals: `metrics.Arrivals`, or None.

    Returns:
      dict of name to number, of all of `metrics.TRAINING` that the run has.
    """
    now = time.perf_counter()
    measured = metrics.Measured(
      result=self._result,
      entropy=self._entropy,
      smoothed=self._smoothed,
      regularization=regularization,
      learning_rate=learning_rate,
      sec_per_batch=(now - self._since) / self._steps,
      seconds=self._before + now - self._start,
      epoch_loss=self._means[0],
      accuracy=self._means[1],
      batch_size=self._epochs.batch_size,
      num_elements=num_elements,
      scaling=scaling,
      arrivals=arrivals,
    )
    self._since, self._steps = now, 0
    found = {m.name: m.compute(measured) for m in metrics.TRAINING}
    return {name: value for name, value in found.items() if value is not None}


def log_line(step, values):
  """The 2017 line of a step, with the bits that were sent."""
  losses, rates = (
    metric.texts(metrics.TRAINING, values, part)
    for part in ('line', 'brackets')
  )
  return (
    f'{datetime.now()}: step {step}, {", ".join(losses)} ({"; ".join(rates)})'
  )
