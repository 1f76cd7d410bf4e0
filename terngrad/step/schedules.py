"""Learning rates and averaging rates as functions of the step.

Everything here is plain Python on plain numbers: the results are given to the
traced step, which so never has to be traced again.
"""

import math

from terngrad.codec import spelling

DECAY_TYPES = ('fixed', 'exponential', 'polynomial', 'linear')


def learning_rate(config, step, num_examples):
  """The learning rate of a step, by the 2017 code's formulas.

  Adam has a fixed learning rate whatever the decay type, unless it is to decay
  as in TF-Slim's trainer, whose polynomial decay is `linear` here.

  Args:
    config: a `config.TrainConfig`.
    step: steps taken before this one.
    num_examples: examples in an epoch.

  Returns:
    float; the polynomial schedule falls as the square root and reaches 0 at
    max_steps.
  """
  initial = config.initial_learning_rate
  decay_type = config.learning_rate_decay_type
  optimizer, _ = spelling.split(config.optimizer)
  if optimizer == 'adam' and not config.decay_adam:
    return initial
  if decay_type == 'fixed':
    return initial
  if decay_type == 'polynomial':
    return initial * math.sqrt(max(0.0, 1.0 - step / config.max_steps))
  steps_per_decay = int(
    num_examples / config.batch_size * config.num_epochs_per_decay
  )
  steps_per_decay = max(1, steps_per_decay)
  if decay_type == 'linear':
    end = config.end_learning_rate
    return end + (initial - end) * max(0.0, 1.0 - step / steps_per_decay)
  drops = step // steps_per_decay
  return initial * config.learning_rate_decay_factor**drops


def averaging_decay(step, limit=0.9999):
  """How much of the moving average of the parameters stays at a step.

  Args:
    step: steps taken before this one.
    limit: what the decay grows to.

  Returns:
    min(limit, (1 + step) / (10 + step)).
  """
  return min(limit, (1 + step) / (10 + step))


def uses_float_gradients(floating_grad_epoch, step, batch_size, num_examples):
  """True in the last epoch of every cycle of `floating_grad_epoch` epochs.

  Args:
    floating_grad_epoch: length of the cycle in epochs; 0 never uses floats and
      1 always does.
    step: steps taken before this one.
    batch_size: examples a step.
    num_examples: examples in an epoch.

  Returns:
    bool.
  """
  if floating_grad_epoch == 0:
    return False
  epoch = step * batch_size // num_examples
  return epoch % floating_grad_epoch == floating_grad_epoch - 1
