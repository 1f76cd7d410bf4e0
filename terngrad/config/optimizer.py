"""Options of the optimizer and the learning rate."""

import dataclasses

from slim import spelling
from terngrad import errors
from terngrad.config import options
from terngrad.passes import inner_optimizers
from terngrad.step import optimizers
from terngrad.step import schedules


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer(options.Part):
  """Options of the optimizer, of local steps and of the learning rate."""

  inner_optimizer: str = options.option(
    'momentum',
    'Of --local_steps: momentum:momentum=0.9, whose velocity begins anew after '
    'every exchange, or adamw:beta1=0.9,beta2=0.999,epsilon=1e-8, whose '
    'moments stay with each node, two more copies of the parameters a node, '
    'and whose L2 terms are decoupled. stays=true or false says otherwise.',
  )
  local_momentum: float = options.option(
    0.0, 'Momentum of --inner_optimizer=momentum.', least=0, most=1
  )
  outer_learning_rate: float = options.option(
    1.0,
    'Learning rate of --optimizer beside --local_steps: with gd 1 averages the '
    'nodes; 0.7 with nesterov in DiLoCo.',
    least=0,
  )
  clip_gradient_norm: float = options.option(
    0.0,
    'Scale the averaged gradient down to this norm over all variables '
    'together, before the optimizer; 0 does not.',
    least=0,
  )
  decoupled_weight_decay: bool = options.option(
    False,
    'Leave the L2 terms out of the gradient: parameters shrink by the share '
    'learning rate * --weight_decay in each update instead.',
  )
  # Changing the name is refused on resume; changing its options is logged. See
  # `assembly`.
  optimizer: str = options.option(
    'momentum',
    f'NAME[:option=value,...], of {", ".join(sorted(optimizers.OPTIMIZERS))}.',
    on_resume=options.FREE,
  )
  initial_learning_rate: float = options.option(0.01, 'Learning rate.', least=0)
  learning_rate_decay_type: str = options.option(
    'exponential',
    'fixed, exponential, polynomial (a square root, to 0 at --max_steps) or '
    'linear (to --end_learning_rate after --num_epochs_per_decay); adam is '
    'fixed without --decay_adam.',
  )
  decay_adam: bool = options.option(
    False, 'Let the learning rate of adam decay as well.'
  )
  end_learning_rate: float = options.option(
    0.0, 'Where the linear decay ends.', least=0
  )
  num_epochs_per_decay: float = options.option(
    20.0, 'Epochs between two drops of the exponential decay.', least=0
  )
  learning_rate_decay_factor: float = options.option(
    0.1, 'Factor of a drop of the exponential decay.', least=0
  )
  momentum: float = options.option(
    0.9, 'Of momentum and rmsprop.', least=0, most=1
  )
  moving_average_decay: float = options.option(
    0.9999, 'Of the averages of the parameters, at most.', least=0, most=1
  )

  @property
  def name(self) -> str:
    """Name of the optimizer, without its options."""
    return spelling.split(self.optimizer)[0]

  def rule(self) -> optimizers.Optimizer:
    """Builds the optimizer that --optimizer describes.

    Raises:
      errors.ConfigError: --optimizer describes no optimizer.
    """
    with errors.as_config_error():
      return optimizers.parse(self.optimizer, self.momentum)

  @property
  def inner_name(self) -> str:
    """Name of the inner optimizer, without its options."""
    return spelling.split(self.inner_optimizer)[0]

  def inner_rule(self) -> inner_optimizers.InnerOptimizer:
    """Builds the optimizer of local steps that --inner_optimizer describes.

    Raises:
      errors.ConfigError: --inner_optimizer describes no optimizer.
    """
    with errors.as_config_error():
      return inner_optimizers.parse(self.inner_optimizer, self.local_momentum)

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    super().validate()
    options.choice('optimizer', self.name, optimizers.OPTIMIZERS)
    self.rule()
    options.choice(
      'inner_optimizer', self.inner_name, inner_optimizers.INNER_OPTIMIZERS
    )
    self.inner_rule()
    options.refuse(
      self.local_momentum != 0 and self.inner_name != 'momentum',
      'local_momentum: expected it to be left out beside --inner_optimizer='
      f'{self.inner_optimizer}, received {self.local_momentum}. Leave one of '
      'the two out.',
    )
    decay = self.learning_rate_decay_type
    options.choice('learning_rate_decay_type', decay, schedules.DECAY_TYPES)
