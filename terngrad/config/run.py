"""Options of a run: what it starts from, computes on and leaves."""

import dataclasses

from terngrad import errors
from terngrad.config import options

AUTO = 'auto'
STATISTICS = ('averaged', 'per_device', 'synchronized')

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """How long a training run is, and what it leaves."""

  max_steps: int = option(370000, 'Steps to train.', on_resume=options.TOLD)
  num_epochs: int = option(
    0,
    'Epochs to train, in place of --max_steps; 0: --max_steps says.',
    on_resume=options.FREE,
  )
  epoch_size: int = option(
    0,
    'Examples that are an epoch, for --num_epochs, learning rates and '
    '--eval_subsets; 0: those of --subset.',
    on_resume=options.TOLD,
  )
  eval_subsets: tuple = option(
    (),
    'Subsets to score after each epoch, separated by commas, as test or '
    'train,validation; with the parameters as they are, not their averages.',
    on_resume=options.FREE,
  )
  train_dir: str = option(
    '',
    'Folder for checkpoints and records; a run that stands there continues.',
    shared=options.OWN,
  )
  overwrite: bool = option(
    False,
    'Delete the run that stands in --train_dir and begin anew.',
    shared=options.OWN,
  )
  save_iter: int = option(5000, 'Steps between checkpoints and histograms.')
  benchmark_mode: bool = option(
    False,
    'Constant images and random labels: no data is read.',
    shared=options.WORKERS,
    on_resume=options.TOLD,
  )
  log_device_placement: bool = option(
    False, 'Log the device of every operation.', shared=options.OWN
  )

  @property
  def counts_epochs(self):
    """Whether the end of each epoch is recorded, and said."""
    return self.num_epochs > 0 or bool(self.eval_subsets)

  def validate(self):
    """Raises `errors.ConfigError` for the first option out of its range."""
    options.at_least('max_steps', self.max_steps, 1)
    options.at_least('save_iter', self.save_iter, 1)
    options.at_least('num_epochs', self.num_epochs, 0)
    options.at_least('epoch_size', self.epoch_size, 0)
    if self.eval_subsets and self.benchmark_mode:
      raise errors.ConfigError(
        'eval_subsets: expected none beside --benchmark_mode, received '
        f'{",".join(self.eval_subsets)}: no data is read. Leave one of the two '
        'out.'
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
  """Values of another run, and scopes of variables."""

  pretrained_model_checkpoint_path: str = option(
    '',
    'Checkpoint prefix, or folder of checkpoints, to start from: of this '
    "package, or TensorFlow 1's, of either format.",
    shared=options.OWN,
  )
  pretrained_weights: str = option(
    '',
    'File that Keras saved, .weights.h5, .h5 or .keras, to start from; layers '
    'are found by name.',
    shared=options.OWN,
  )
  fine_tune: bool = option(
    False,
    'Leave the logits of what is pretrained out, auxiliary ones too, and start '
    'at step 0.',
  )
  restart_step: bool = option(
    False,
    'Start at step 0, with fresh slots of the optimizer, though the logits are '
    'restored; otherwise the run goes on from the step of the checkpoint.',
  )
  checkpoint_exclude_scopes: str = option(
    '',
    'Scopes of variables not to restore, separated by commas: layers, or '
    "TF-Slim's names as InceptionV3/Logits.",
  )
  ignore_missing_vars: bool = option(
    False, 'Variables that are not in the checkpoint begin anew.'
  )
  trainable_scopes: str = option(
    '',
    'Scopes of parameters to train, separated by commas; the others stay what '
    'they are, and are not sent. Empty: all.',
    on_resume=options.KEPT,
  )

  @property
  def path(self):
    """The file or folder that the run starts from, or ''."""
    return self.pretrained_model_checkpoint_path or self.pretrained_weights

  def validate(self):
    """Raises `errors.ConfigError` for the first option out of its range."""
    if self.pretrained_model_checkpoint_path and self.pretrained_weights:
      raise errors.ConfigError(
        'pretrained_weights: expected it without '
        '--pretrained_model_checkpoint_path, received both. Choose one to '
        'start from.'
      )
    if self.fine_tune and not self.path:
      raise errors.ConfigError(
        'fine_tune: expected --pretrained_model_checkpoint_path or '
        '--pretrained_weights beside it, received none. Name the file to start '
        'from.'
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
  """What computes gradients, in how many parts."""

  bn_statistics: str = option(
    'averaged',
    'Batch normalisation. averaged: a node sees its own examples, and moving '
    'statistics are averaged over all nodes each step. per_device: over the '
    'nodes of each device, which keeps its own. synchronized: every layer sees '
    'the examples of all nodes; one node a device.',
    on_resume=options.KEPT,
  )
  gradient_accumulation_steps: int = option(
    1,
    "Parts of a node's share that are computed one after the other and "
    'averaged before the gradient is coded: less memory.',
    on_resume=options.TOLD,
  )
  optimize_gradient_memory: bool = option(
    False,
    'Recompute activations in the backward pass, segment by segment, in place '
    'of keeping them: less memory, a third more time, the same bits.',
  )
  local_steps: int = option(
    1,
    'Steps of --inner_optimizer that a node takes by itself, at the learning '
    'rate, each on a part of its share; what they changed is then coded, '
    'averaged and given to --optimizer in place of a gradient.',
    on_resume=options.TOLD,
  )
  fragments: int = option(
    1,
    'Parts of a model with --local_steps, whole layers, that are exchanged in '
    'turns: a step is then a share of the local steps and the exchange of one. '
    'A node keeps parameters of its own, one more copy a node.',
    on_resume=options.KEPT,
  )
  overlap_steps: int = option(
    0,
    'Local steps that a node takes while an exchange is on its way, before it '
    'mixes in what that brought; fewer than --local_steps over --fragments.',
    on_resume=options.KEPT,
  )
  mixing_factor: float = option(
    0.5,
    "A node's own share in what --overlap_steps mixes, from 0 to 1.",
    on_resume=options.TOLD,
  )
  num_gpus: int = option(
    1,
    'Devices; logical CPU devices where there is no GPU.',
    shared=options.WORKERS,
  )
  devices: tuple = option(
    (),
    'Devices of this process by their names, with commas, in place of '
    '--num_gpus: gpu:0,cpu:0 has a tower on each of two kinds.',
    shared=options.WORKERS,
  )
  device_weights: tuple = option(
    (),
    'Parts of a batch that devices compute, as 1,0.25 where the second is four '
    'times slower, a number a device, process by process; auto measures them. '
    'The average is that of all examples. Empty: equal parts.',
    on_resume=options.TOLD,
  )
  threads: int = option(
    0,
    'Cores that one operation of this process uses; 0: all. With 1 two runs '
    'side by side take less time than one after the other. The last bits of a '
    'run depend on it.',
    shared=options.WORKERS,
    on_resume=options.TOLD,
  )
  num_nodes: int = option(
    -1, 'Virtual nodes, spread over the devices; -1 for one a device.'
  )
  save_tower: int = option(
    -1,
    "Store the parameters of this node's device only; -1 for every device's.",
  )

  @property
  def count(self):
    """Devices of a process."""
    return len(self.devices) or self.num_gpus

  @property
  def steps_of_turn(self):
    """Local steps between two exchanges."""
    return self.local_steps // self.fragments

  @property
  def weights(self):
    """What --device_weights says: list of float, or `AUTO`.

    Raises:
      errors.ConfigError: it says neither.
    """
    if self.device_weights == (AUTO,):
      return AUTO
    try:
      found = [float(text) for text in self.device_weights]
    except ValueError as error:
      raise errors.ConfigError(
        'device_weights: expected auto or a number a device, with commas, '
        f'received {",".join(self.device_weights)[:200]!r}. Use 1,0.25 where '
        'the second of two devices is four times slower.'
      ) from error
    for weight in found:
      options.in_range('device_weights', weight, 0.001, 1000)
    return found

  def validate(self):
    """Raises `errors.ConfigError` for the first option out of its range."""
    options.choice('bn_statistics', self.bn_statistics, STATISTICS)
    if self.weights:
      self._check_weights()
    for name in ('gradient_accumulation_steps', 'local_steps', 'num_gpus'):
      options.at_least(name, getattr(self, name), 1)
    options.at_least('save_tower', self.save_tower, -1)
    options.at_least('threads', self.threads, 0)
    self._check_fragments()
    if self.local_steps > 1:
      self._check_local_steps()
    if self.bn_statistics == 'per_device' and self.save_tower >= 0:
      raise errors.ConfigError(
        'save_tower: expected -1 beside --bn_statistics=per_device, received '
        f"{self.save_tower}: the other devices' statistics would be lost. "
        'Leave one of the two out.'
      )
    parts = self.gradient_accumulation_steps
    if self.bn_statistics == 'synchronized' and parts > 1:
      raise errors.ConfigError(
        'gradient_accumulation_steps: expected 1 beside '
        f'--bn_statistics=synchronized, received {parts}: parts run one after '
        'the other. Use --bn_statistics=averaged.'
      )

  def _check_weights(self):
    """Refuses what needs equal shares."""
    for name in ('gradient_accumulation_steps', 'local_steps', 'bn_statistics'):
      given = getattr(self, name)
      if given not in (1, 'averaged', 'per_device'):
        raise errors.ConfigError(
          f'device_weights: expected none beside --{name}={given}, which takes '
          f'equal shares, received {",".join(self.device_weights)}. Leave one '
          'of the two out.'
        )

  def _check_fragments(self):
    options.at_least('fragments', self.fragments, 1)
    options.at_least('overlap_steps', self.overlap_steps, 0)
    if self.local_steps % self.fragments:
      more = self.local_steps + self.fragments
      raise errors.ConfigError(
        'local_steps: expected a multiple of the '
        f'{self.fragments} fragments, received {self.local_steps}. Use '
        f'--local_steps={more - more % self.fragments}, or other --fragments.'
      )
    if self.overlap_steps and self.overlap_steps >= self.steps_of_turn:
      raise errors.ConfigError(
        f'overlap_steps: expected fewer than the {self.steps_of_turn} local '
        f'steps between two exchanges, received {self.overlap_steps}. Use '
        f'more --local_steps, or --overlap_steps={self.steps_of_turn - 1}.'
      )
    options.in_range('mixing_factor', self.mixing_factor, 0, 1)
    if not (self.overlap_steps or options.is_default(self, 'mixing_factor')):
      raise errors.ConfigError(
        'mixing_factor: expected it to be left out without --overlap_steps, '
        f'received {self.mixing_factor}. Give --overlap_steps=1, or leave it '
        'out.'
      )

  def _check_local_steps(self):
    if self.gradient_accumulation_steps > 1:
      raise errors.ConfigError(
        'gradient_accumulation_steps: expected it to be left out beside '
        f'--local_steps={self.local_steps}, received '
        f'{self.gradient_accumulation_steps}: a local step is of a whole part. '
        'Leave one of the two out.'
      )
    if self.bn_statistics == 'synchronized':
      raise errors.ConfigError(
        'bn_statistics: expected averaged or per_device beside '
        f'--local_steps={self.local_steps}, received synchronized: nodes have '
        'parameters of their own between exchanges. Leave one of the two out.'
      )
