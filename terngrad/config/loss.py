"""Options of the loss, its gradient and the update that came after 2017."""

import dataclasses

from terngrad import errors
from terngrad.config import codes
from terngrad.config import options

DTYPES = ('float32', 'bfloat16', 'float16')
STATISTICS = ('averaged', 'per_device', 'synchronized')


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodConfig(codes.CodeConfig):
  """What is minimized, in which precision, and how an update is bounded."""

  label_smoothing: float = options.option(
    -1.0,
    'Share of each label that is spread evenly over all classes; -1 for the '
    "net's own, 0.1 for inception_v3.",
    'model',
  )
  aux_loss_weight: float = options.option(
    -1.0,
    'Factor of the loss of auxiliary logits, where the net has them; -1 for '
    "the net's own, 0.4.",
    'model',
  )
  dtype: str = options.option(
    'float32',
    'float32, bfloat16 or float16: of the computations of the layers; '
    'parameters, logits and gradients are float32. float16 scales the loss, '
    'and skips a step whose gradients are not finite.',
    'model',
  )
  batch_norm_decay: float = options.option(
    -1.0,
    'Share of the moving statistics of batch normalisation that a step keeps, '
    "from 0 to below 1; -1 for the net's own, 0.9997 for most. Runs of fewer "
    'than some 10,000 steps want less: 0.9 for hundreds, 0.99 for thousands.',
    'model',
  )
  bn_statistics: str = options.option(
    'averaged',
    'Batch normalisation. averaged: a node sees its own examples, and moving '
    'statistics are averaged over all nodes each step. per_device: over the '
    'nodes of each device, which keeps its own. synchronized: every layer sees '
    'the examples of all nodes; one node a device.',
    'devices',
    on_resume=options.KEPT,
  )
  gradient_accumulation_steps: int = options.option(
    1,
    "Parts of a node's share that are computed one after the other and "
    'averaged before the gradient is coded: less memory.',
    'devices',
    on_resume=options.TOLD,
  )
  local_steps: int = options.option(
    1,
    'Steps of plain descent that a node takes by itself, at the learning rate, '
    'each on a part of its share; what they changed is then coded, averaged '
    'and given to --optimizer in place of a gradient.',
    'devices',
    on_resume=options.TOLD,
  )
  local_momentum: float = options.option(
    0.0,
    'Momentum of --local_steps, which begins anew after every exchange.',
    'rate',
  )
  outer_learning_rate: float = options.option(
    1.0,
    'Learning rate of --optimizer beside --local_steps: with gd 1 averages the '
    'nodes; 0.7 with nesterov in DiLoCo.',
    'rate',
  )
  clip_gradient_norm: float = options.option(
    0.0,
    'Scale the averaged gradient down to this norm over all variables '
    'together, before the optimizer; 0 does not.',
    'rate',
  )
  decoupled_weight_decay: bool = options.option(
    False,
    'Leave the L2 terms out of the gradient: parameters shrink by the share '
    'learning rate * --weight_decay in each update instead.',
    'rate',
  )

  def validate(self):
    """Raises `errors.ConfigError` for the first field out of its range."""
    super().validate()
    if self.label_smoothing != -1:
      options.in_range('label_smoothing', self.label_smoothing, 0, 1)
    if self.aux_loss_weight != -1:
      options.at_least('aux_loss_weight', self.aux_loss_weight, 0)
    if self.batch_norm_decay != -1:
      options.in_range('batch_norm_decay', self.batch_norm_decay, 0, 1)
    if self.batch_norm_decay == 1:
      raise errors.ConfigError(
        'batch_norm_decay: expected a share below 1, received 1, with which '
        'the moving statistics stay at their beginning. Use 0.9997, or -1 for '
        "the net's own."
      )
    options.choice('dtype', self.dtype, DTYPES)
    options.at_least('clip_gradient_norm', self.clip_gradient_norm, 0)
    options.at_least(
      'gradient_accumulation_steps', self.gradient_accumulation_steps, 1
    )
    options.choice('bn_statistics', self.bn_statistics, STATISTICS)
    self._check_local_steps()

  def _check_local_steps(self):
    options.at_least('local_steps', self.local_steps, 1)
    options.in_range('local_momentum', self.local_momentum, 0, 1)
    options.at_least('outer_learning_rate', self.outer_learning_rate, 0)
    if self.local_steps == 1:
      for name in ('local_momentum', 'outer_learning_rate'):
        if not options.is_default(self, name):
          raise errors.ConfigError(
            f'{name}: expected it to be left out without local steps, received '
            f'{getattr(self, name)}. Give --local_steps=20, or leave it out.'
          )
      return
    for name, why in {
      'gradient_accumulation_steps': 'a local step is of a whole part',
      'decoupled_weight_decay': 'L2 terms act in the local steps',
    }.items():
      if not options.is_default(self, name):
        raise errors.ConfigError(
          f'{name}: expected it to be left out beside '
          f'--local_steps={self.local_steps}, received {getattr(self, name)}: '
          f'{why}. Leave one of the two out.'
        )
    if self.bn_statistics == 'synchronized':
      raise errors.ConfigError(
        'bn_statistics: expected averaged or per_device beside '
        f'--local_steps={self.local_steps}, received synchronized: nodes have '
        'parameters of their own between exchanges. Leave one of the two out.'
      )
