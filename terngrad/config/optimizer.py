"""Options of the optimizer and the learning rate."""

import dataclasses

from slim import spelling
from terngrad import errors
from terngrad.config import options
from terngrad.passes import inner_optimizers
from terngrad.step import optimizers
from terngrad.step import schedules

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer:
  """How an averaged gradient, or what local steps changed, is applied."""

  inner_optimizer: str = option(
    'momentum',
    'Of --local_steps: momentum:momentum=0.9, whose velocity begins anew after '
    'every exchange, or adamw:beta1=0.9,beta2=0.999,epsilon=1e-8, whose '
    'moments stay with each node, two more copies of the parameters a node, '
    'and whose L2 terms are decoupled. stays=true or false says otherwise.',
  )
  local_momentum: float = option(0.0, 'Momentum of --inner_optimizer=momentum.')
  outer_learning_rate: float = option(
    1.0,
    'Learning rate of --optimizer beside --local_steps: with gd 1 averages the '
    'nodes; 0.7 with nesterov in DiLoCo.',
  )
  clip_gradient_norm: float = option(
    0.0,
    'Scale the averaged gradient down to this norm over all variables '
    'together, before the optimizer; 0 does not.',
  )
  decoupled_weight_decay: bool = option(
    False,
    'Leave the L2 terms out of the gradient: parameters shrink by the share '
    'learning rate * --weight_decay in each update instead.',
  )
  # Its name is kept on resume, and what it says is told: see `assembly`.
  optimizer: str = option(
    'momentum',
    f'NAME[:option=value,...], of {", ".join(sorted(optimizers.OPTIMIZERS))}.',
    on_resume=options.FREE,
  )
  initial_learning_rate: float = option(0.01, 'Learning rate.')
  learning_rate_decay_type: str = option(
    'exponential',
    'fixed, exponential, polynomial (a square root, to 0 at --max_steps) or '
    'linear (to --end_learning_rate after --num_epochs_per_decay); adam is '
    'fixed without --decay_adam.',
  )
  decay_adam: bool = option(
    False, 'Let the learning rate of adam decay as well.'
  )
  end_learning_rate: float = option(0.0, 'Where the linear decay ends.')
  num_epochs_per_decay: float = option(
    20.0, 'Epochs between two drops of the exponential decay.'
  )
  learning_rate_decay_factor: float = option(
    0.1, 'Factor of a drop of the exponential decay.'
  )
  momentum: float = option(0.9, 'Of momentum and rmsprop.')
  moving_average_decay: float = option(
    0.9999, 'Of the averages of the parameters, at most.'
  )

  @property
  def name(self):
    """The optimizer without its options."""
    return spelling.split(self.optimizer)[0]

  def rule(self) -> optimizers.Optimizer:
    """The optimizer that --optimizer describes.

    Raises:
      errors.ConfigError: it describes none.
    """
    with errors.as_config_error():
      return optimizers.parse(self.optimizer, self.momentum)

  @property
  def inner_name(self):
    """The inner optimizer without its options."""
    return spelling.split(self.inner_optimizer)[0]

  def inner_rule(self) -> inner_optimizers.InnerOptimizer:
    """The inner optimizer that --inner_optimizer describes.

    Raises:
      errors.ConfigError: it describes none.
    """
    with errors.as_config_error():
      return inner_optimizers.parse(self.inner_optimizer, self.local_momentum)

  def validate(self):
    """Raises `errors.ConfigError` for the first option out of its range."""
    options.choice('optimizer', self.name, optimizers.OPTIMIZERS)
    self.rule()
    inner = inner_optimizers.INNER_OPTIMIZERS
    options.choice('inner_optimizer', self.inner_name, inner)
    self.inner_rule()
    if self.local_momentum and self.inner_name != 'momentum':
      raise errors.ConfigError(
        'local_momentum: expected it to be left out beside --inner_optimizer='
        f'{self.inner_optimizer}, received {self.local_momentum}. Leave one of '
        'the two out.'
      )
    decay = 'learning_rate_decay_type'
    options.choice(decay, self.learning_rate_decay_type, schedules.DECAY_TYPES)
    for name in (
      'outer_learning_rate',
      'clip_gradient_norm',
      'initial_learning_rate',
      'num_epochs_per_decay',
      'learning_rate_decay_factor',
      'end_learning_rate',
    ):
      options.at_least(name, getattr(self, name), 0)
    for name in ('local_momentum', 'momentum', 'moving_average_decay'):
      options.in_range(name, getattr(self, name), 0, 1)
