"""Learning rates and averaging rates as functions of the step.

All functions are plain Python on plain numbers. Their results are arguments of
the traced step, so new values never retrace it.
"""

import math
from typing import NamedTuple
from typing import Protocol

DECAY_TYPES = ('fixed', 'exponential', 'polynomial', 'linear')


class Decay(Protocol):
  """Options of a learning rate schedule; see `config.optimizer`."""

  @property
  def name(self) -> str:
    """Name of the optimizer."""

  @property
  def initial_learning_rate(self) -> float:
    """Learning rate of the first step."""

  @property
  def learning_rate_decay_type(self) -> str:
    """One of `DECAY_TYPES`."""

  @property
  def learning_rate_decay_factor(self) -> float:
    """Factor of the learning rate at each drop of 'exponential'."""

  @property
  def num_epochs_per_decay(self) -> float:
    """Epochs between two drops of 'exponential', or the length of 'linear'."""

  @property
  def end_learning_rate(self) -> float:
    """Learning rate at the end of 'linear'."""

  @property
  def decay_adam(self) -> bool:
    """True if the learning rate of Adam decays too."""


class Epoch(NamedTuple):
  """Position of a step in its epoch.

  Attributes:
    number: number of the epoch, from 1.
    step: number of the step in the epoch, from 1.
  """

  number: int
  step: int
  num_steps: int


class Epochs(NamedTuple):
  """Converts steps to epochs.

  A batch may hold the last examples of one epoch and the first of the next. Its
  step is then the last one of the first epoch.

  Attributes:
    num_examples: examples per epoch.
    batch_size: examples per step.
  """

  num_examples: int
  batch_size: int

  def steps(self, count: int) -> int:
    """Counts the steps until `count` epochs have ended."""
    return -(-count * self.num_examples // self.batch_size)

  def epoch_at(self, step: int) -> Epoch:
    """Finds the epoch of a step: the epoch of its first example.

    Args:
      step: number of steps taken, including this one; >= 1.
    """
    before = (step - 1) * self.batch_size // self.num_examples
    first = self.steps(before)
    return Epoch(before + 1, step - first, self.steps(before + 1) - first)

  def ending_epoch(self, step: int) -> int | None:
    """Finds the epoch, from 1, that ends in a step; None if none does.

    If several epochs end in one step, it is the last of them.

    Args:
      step: number of steps taken, including this one; >= 1.
    """
    before, after = (
      taken * self.batch_size // self.num_examples for taken in (step - 1, step)
    )
    return after if after > before else None


def learning_rate(
  optimizer: Decay, step: int, steps_per_epoch: float, max_steps: int
) -> float:
  """Computes the learning rate of a step by the formulas of the 2017 code.

  For Adam the learning rate is fixed, whatever the decay type. With
  `decay_adam` it decays, as in TF-Slim's trainer. 'polynomial' is initial *
  sqrt(1 - step / max_steps), 0 from max_steps on; TF-Slim's polynomial decay is
  'linear' here.

  Args:
    optimizer: the options of the schedule.
    step: number of steps taken before this one.
    steps_per_epoch: mean over epochs.
    max_steps: steps of the run.
  """
  initial = optimizer.initial_learning_rate
  decay_type = optimizer.learning_rate_decay_type
  if _is_adam(optimizer) or decay_type == 'fixed':
    return initial
  if needs_max_steps(optimizer):
    return initial * math.sqrt(max(0.0, 1.0 - step / max_steps))
  # A run has fewer than 2**62 steps, so more epochs than these mean never.
  decay_steps = steps_per_epoch * optimizer.num_epochs_per_decay
  steps_per_decay = max(1, int(min(decay_steps, 2.0**62)))
  if decay_type == 'linear':
    end = optimizer.end_learning_rate
    return end + (initial - end) * max(0.0, 1.0 - step / steps_per_decay)
  drops = step // steps_per_decay
  try:
    return initial * optimizer.learning_rate_decay_factor**drops
  except OverflowError:
    return math.inf


def needs_max_steps(optimizer: Decay) -> bool:
  """Checks whether the learning rate depends on the number of steps to take."""
  decay_type = optimizer.learning_rate_decay_type
  return decay_type == 'polynomial' and not _is_adam(optimizer)


def _is_adam(optimizer: Decay) -> bool:
  return optimizer.name == 'adam' and not optimizer.decay_adam


def averaging_decay(step: int, limit: float = 0.9999) -> float:
  """Computes the decay of the moving averages of the parameters at a step.

  Args:
    step: number of steps taken before this one.
    limit: maximum of the decay.

  Returns:
    min(limit, (1 + step) / (10 + step)).
  """
  return min(limit, (1 + step) / (10 + step))


def uses_float_gradients(
  floating_grad_epoch: int, step: int, batch_size: int, num_examples: int
) -> bool:
  """Checks whether a step exchanges float32 gradients instead of codes.

  It does in the last epoch of each cycle of `floating_grad_epoch` epochs.

  Args:
    floating_grad_epoch: length of the cycle in epochs. With 0 no step uses
      floats, with 1 every step does.
    step: number of steps taken before this one.
    batch_size: examples per step.
    num_examples: examples per epoch.
  """
  if floating_grad_epoch == 0:
    return False
  epoch = step * batch_size // num_examples
  return epoch % floating_grad_epoch == floating_grad_epoch - 1
