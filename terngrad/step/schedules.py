"""Learning rates and averaging rates as functions of the step.

Everything here is plain Python on plain numbers: the results are given to the
traced step, which so never has to be traced again.
"""

import math
from typing import NamedTuple
from typing import Protocol

DECAY_TYPES = ('fixed', 'exponential', 'polynomial', 'linear')


class Decay(Protocol):
  """How a learning rate falls: `config.optimizer.Optimizer`."""

  @property
  def name(self) -> str:
    """Of the optimizer."""

  @property
  def initial_learning_rate(self) -> float:
    """The rate of the first step."""

  @property
  def learning_rate_decay_type(self) -> str:
    """Of `DECAY_TYPES`."""

  @property
  def learning_rate_decay_factor(self) -> float:
    """Of a drop, for 'exponential'."""

  @property
  def num_epochs_per_decay(self) -> float:
    """From one drop to the next, or until the end of 'linear'."""

  @property
  def end_learning_rate(self) -> float:
    """Where 'linear' ends."""

  @property
  def decay_adam(self) -> bool:
    """Whether the rate of Adam falls too."""


class Epoch(NamedTuple):
  """Where a step is in its epoch.

  Attributes:
    number: of the epoch, from 1.
    step: of the epoch, from 1.
    num_steps: of the epoch.
  """

  number: int
  step: int
  num_steps: int


class Epochs(NamedTuple):
  """How steps and epochs go together.

  Examples come in a stream without borders, so a step may hold the last of one
  epoch and the first of the next. It then ends the first.

  Attributes:
    num_examples: in an epoch.
    batch_size: examples a step.
  """

  num_examples: int
  batch_size: int

  def steps(self, count: int) -> int:
    """Steps until so many epochs have ended."""
    return -(-count * self.num_examples // self.batch_size)

  def of(self, step: int) -> Epoch:
    """The epoch that a step is of: the first that its examples are of.

    Args:
      step: steps taken, this one among them; >= 1.
    """
    before = (step - 1) * self.batch_size // self.num_examples
    first = self.steps(before)
    return Epoch(before + 1, step - first, self.steps(before + 1) - first)

  def ended(self, step: int) -> int | None:
    """The number, from 1, of the epoch that ends in a step; or None.

    Where a batch is larger than an epoch, it is the last of those that end.

    Args:
      step: steps taken, this one among them.
    """
    before, after = (
      taken * self.batch_size // self.num_examples for taken in (step - 1, step)
    )
    return after if after > before else None


def learning_rate(
  optimizer: Decay, step: int, steps_per_epoch: float, max_steps: int
) -> float:
  """The learning rate of a step, by the 2017 code's formulas.

  Adam has a fixed learning rate whatever the decay type, unless it is to decay
  as in TF-Slim's trainer, whose polynomial decay is `linear` here.

  Args:
    optimizer: of the run.
    step: steps taken before this one.
    steps_per_epoch: on average.
    max_steps: of the run.

  Returns:
    The rate; the polynomial schedule falls as the square root and reaches 0 at
    max_steps.
  """
  initial = optimizer.initial_learning_rate
  decay_type = optimizer.learning_rate_decay_type
  if _is_adam(optimizer) or decay_type == 'fixed':
    return initial
  if needs_max_steps(optimizer):
    return initial * math.sqrt(max(0.0, 1.0 - step / max_steps))
  steps_per_decay = int(steps_per_epoch * optimizer.num_epochs_per_decay)
  steps_per_decay = max(1, steps_per_decay)
  if decay_type == 'linear':
    end = optimizer.end_learning_rate
    return end + (initial - end) * max(0.0, 1.0 - step / steps_per_decay)
  drops = step // steps_per_decay
  return initial * optimizer.learning_rate_decay_factor**drops


def needs_max_steps(optimizer: Decay) -> bool:
  """Whether the learning rate of a step depends on the last one's number."""
  decay_type = optimizer.learning_rate_decay_type
  return decay_type == 'polynomial' and not _is_adam(optimizer)


def _is_adam(optimizer: Decay) -> bool:
  return optimizer.name == 'adam' and not optimizer.decay_adam


def averaging_decay(step: int, limit: float = 0.9999) -> float:
  """How much of the moving average of the parameters stays at a step.

  Args:
    step: steps taken before this one.
    limit: what the decay grows to.

  Returns:
    min(limit, (1 + step) / (10 + step)).
  """
  return min(limit, (1 + step) / (10 + step))


def uses_float_gradients(
  floating_grad_epoch: int, step: int, batch_size: int, num_examples: int
) -> bool:
  """True in the last epoch of every cycle of `floating_grad_epoch` epochs.

  Args:
    floating_grad_epoch: length of the cycle in epochs; 0 never uses floats and
      1 always does.
    step: steps taken before this one.
    batch_size: examples a step.
    num_examples: examples in an epoch.
  """
  if floating_grad_epoch == 0:
    return False
  epoch = step * batch_size // num_examples
  return epoch % floating_grad_epoch == floating_grad_epoch - 1
