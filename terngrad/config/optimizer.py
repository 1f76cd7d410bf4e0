"""Options of the optimizer and the learning rate."""

import dataclasses

from slim import spelling
from terngrad import aliases
from terngrad import errors
from terngrad.config import options
from terngrad.passes import inner_optimizers
from terngrad.recipes import catalog
from terngrad.recipes import recipe as recipes
from terngrad.step import optimizers
from terngrad.step import schedules

__getattr__ = aliases.renamed_names(__name__, Optimizer='OptimizerOptions')


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerOptions(options.ConfigPart):
  """Options of the optimizer, of local steps and of the learning rate."""

  recipe: str = options.option(
    '',
    f'A published recipe of local steps: {", ".join(catalog.RECIPES)}. It sets '
    f'--{", --".join(recipes.FLAGS.values())}, unless the command line sets '
    'them; the log lists the values (docs/local_steps.md).',
    on_resume=options.IGNORED,
  )
  # As for `optimizer` below, another name is refused on resume.
  inner_optimizer: str = options.option(
    'momentum',
    'Optimizer of --local_steps: momentum:momentum=0.9, whose velocity is '
    'reset after every exchange, or adamw:beta1=0.9,beta2=0.999,epsilon=1e-8, '
    'with decoupled weight decay, whose moments stay on each node and take two '
    'more copies of the parameters per node, or muon:beta=0.95 for matrices '
    'with adamw for all other parameters. With the option stays=true '
    'velocity or moments stay on the node; with stays=false every exchange '
    'resets them.',
  )
  local_momentum: float = options.option(
    0.0, 'Momentum of --inner_optimizer=momentum.', least=0, most=1
  )
  outer_learning_rate: float = options.option(
    1.0,
    'With --local_steps: learning rate of --optimizer. 1 with gd averages the '
    'parameters of the nodes; DiLoCo uses 0.7 with nesterov.',
    least=0,
  )
  clip_gradient_norm: float = options.option(
    0.0,
    'Largest global norm (over all variables) of the averaged gradient; a '
    'larger one is scaled down to it before the optimizer. With local steps '
    'it is the norm of the averaged change, with --fragments of each '
    "fragment's. 0: no limit.",
    least=0,
  )
  decoupled_weight_decay: bool = options.option(
    False,
    'Leave the L2 terms out of the gradient; each update subtracts learning '
    'rate * --weight_decay * parameter instead.',
  )
  # Changing the name is refused on resume; changing its options is logged. See
  # `assembly`.
  optimizer: str = options.option(
    'momentum',
    'Optimizer, NAME[:option=value,...]. NAME is one of '
    f'{", ".join(sorted(optimizers.OPTIMIZERS))}.',
    on_resume=options.IGNORED,
  )
  initial_learning_rate: float = options.option(0.01, 'Learning rate.', least=0)
  learning_rate_decay_type: str = options.option(
    'exponential',
    'Schedule of the learning rate: fixed, exponential, polynomial (a square '
    'root, to 0 at --max_steps) or linear (to --end_learning_rate after '
    '--num_epochs_per_decay). Without --decay_adam the rate of adam is fixed.',
  )
  decay_adam: bool = options.option(
    False, 'Let the learning rate of adam decay as well.'
  )
  end_learning_rate: float = options.option(
    0.0, 'Learning rate at the end of the linear decay.', least=0
  )
  num_epochs_per_decay: float = options.option(
    20.0,
    'Epochs between two drops of the exponential decay, or the length of the '
    'linear decay in epochs.',
    least=0,
  )
  learning_rate_decay_factor: float = options.option(
    0.1, 'Factor of each drop of the exponential decay.', least=0
  )
  momentum: float = options.option(
    0.9,
    'Momentum of --optimizer=momentum, nesterov or rmsprop.',
    least=0,
    most=1,
  )
  moving_average_decay: float = options.option(
    0.9999,
    'Largest decay of the moving averages of the parameters.',
    least=0,
    most=1,
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

  def check_local_steps(self, count: int) -> None:
    """Refuses options that have no effect without local steps.

    Args:
      count: number of local steps between two exchanges; 1 for none.

    Raises:
      errors.ConfigError: names the option.
    """
    if count > 1:
      return
    if self.recipe:
      raise errors.ConfigError(
        f'recipe: expected local_steps={catalog.find(self.recipe).every} or '
        f'another number above 1 beside recipe={self.recipe}, received {count}.'
        ' Leave local_steps out, or give another number. A configuration in '
        'Python needs all values of Recipe.flags.'
      )
    for name in ('inner_optimizer', 'local_momentum', 'outer_learning_rate'):
      options.refuse(
        not options.is_default(self, name),
        f'{name}: expected it to be left out without local steps, received '
        f'{getattr(self, name)}. Give local_steps=20, or leave it out.',
      )

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    super().validate()
    if self.recipe:
      options.choice('recipe', self.recipe, catalog.RECIPES)
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
