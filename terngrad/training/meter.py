"""What the loop measures between two records."""

import math
import time
from datetime import datetime

_SMOOTHING = 0.9


class Meter:
  """Losses, rates and times between two records."""

  def __init__(self, batch_size, last):
    """Starts the clock.

    Args:
      batch_size: examples a step.
      last: the last record of the run that continues, or {}.
    """
    self._batch_size = batch_size
    self._before = last.get('seconds') or 0.0
    self._smoothed = last.get('entropy_loss_smoothed')
    self._start = self._since = time.perf_counter()
    self._steps = 0
    self._result = None
    self._entropy = 0.0

  def add(self, result):
    """Takes in the `step.StepResult` of a step."""
    self._steps += 1
    self._result = result
    self._entropy = float(result.entropy.numpy().mean())
    if self._smoothed is None:
      self._smoothed = self._entropy
    if math.isfinite(self._entropy):  # not where a scaled loss overflows
      self._smoothed += (1 - _SMOOTHING) * (self._entropy - self._smoothed)

  def values(self, num_elements, learning_rate, regularization):
    """What to record now: a dict of name to number.

    Args:
      num_elements: of a gradient, for the bits an element.
      learning_rate: of the last step.
      regularization: the L2 terms of the parameters after the last step.

    Returns:
      Entropy loss and bits are the last step's, mean over the workers; rates
      are means since the last record; 'seconds' counts all runs of the folder.
    """
    now = time.perf_counter()
    per_step = (now - self._since) / self._steps
    # What a worker sent on average: words and probes, 4 bytes a number.
    words = float(self._result.sent.numpy().mean())
    bits = 32 * (words + self._result.probes.shape[1])
    self._since, self._steps = now, 0
    return {
      'entropy_loss': self._entropy,
      'reg_loss': regularization,
      'total_loss': self._entropy + regularization,
      'entropy_loss_smoothed': self._smoothed,
      'total_loss_smoothed': self._smoothed + regularization,
      'learning_rate': learning_rate,
      'examples_per_sec': self._batch_size / per_step,
      'sec_per_batch': per_step,
      'bits_per_element': bits / num_elements,
      'seconds': self._before + now - self._start,
    }


# The 2017 tags: raw losses carry a suffix.
TAGS = {
  'entropy_loss': 'entropy_loss_raw',
  'total_loss': 'total_loss_raw',
  'entropy_loss_smoothed': 'entropy_loss',
  'total_loss_smoothed': 'total_loss',
}


def log_line(step, values):
  """The 2017 line of a step, with the bits that were sent."""
  return (
    f'{datetime.now()}: step {step}, '
    f'entropy_loss = {values["entropy_loss"]:.2f}, '
    f'reg_loss = {values["reg_loss"]:.2f}, '
    f'total_loss = {values["total_loss"]:.2f} '
    f'({values["examples_per_sec"]:.1f} examples/sec; '
    f'{values["sec_per_batch"]:.3f} sec/batch; '
    f'{values["bits_per_element"]:.2f} bits/element)'
  )
