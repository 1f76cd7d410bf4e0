"""What a run is: one frozen value a program, with its own documentation.

Every field is also a flag of the programs: `cli.flags` reads names, types,
defaults and help from here, so that there is one list of them. Names and
defaults are the 2017 code's where it had them. The fields stand by what they
are about in `model`, `codes`, `loss`, `pretrained` and `cluster`; those of an
evaluation in `evaluation`, and those of parameter servers in `servers`.
"""

import dataclasses
import os

from terngrad import errors
from terngrad.codec import spelling
from terngrad.config import cluster
from terngrad.config import evaluation
from terngrad.config import model
from terngrad.config import options
from terngrad.config import pretrained
from terngrad.step import optimizers
from terngrad.step import schedules

# Callers look for every configuration here.
EvalConfig = evaluation.EvalConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(cluster.ClusterConfig, pretrained.PretrainedConfig):
  """A training run, on the devices of one machine or of a cluster."""

  train_dir: str = options.option(
    os.path.join(model.TEMPORARY, 'dataset_train'),
    'Folder for checkpoints and records; a run that stands there continues.',
    'run',
    shared=options.OWN,
  )
  overwrite: bool = options.option(
    False,
    'Delete the run that stands in --train_dir and begin anew.',
    'run',
    shared=options.OWN,
  )
  save_iter: int = options.option(
    5000, 'Steps between checkpoints and histograms.', 'run'
  )
  benchmark_mode: bool = options.option(
    False,
    'Constant images and random labels: no data is read.',
    'run',
    shared=options.WORKERS,
    on_resume=options.TOLD,
  )
  log_device_placement: bool = options.option(
    False, 'Log the device of every operation.', 'run', shared=options.OWN
  )
  num_gpus: int = options.option(
    1,
    'Devices; logical CPU devices where there is no GPU.',
    'devices',
    shared=options.WORKERS,
  )
  num_nodes: int = options.option(
    -1,
    'Virtual nodes, spread over the devices; -1 for one a device.',
    'devices',
  )
  save_tower: int = options.option(
    -1,
    "Store the parameters of this node's device only; -1 for every device's.",
    'devices',
  )
  # Its name is kept on resume, and what it says is told: see `assembly`.
  optimizer: str = options.option(
    'momentum',
    f'NAME[:option=value,...], of {", ".join(sorted(optimizers.OPTIMIZERS))}.',
    'rate',
    on_resume=options.FREE,
  )
  initial_learning_rate: float = options.option(0.01, 'Learning rate.', 'rate')
  learning_rate_decay_type: str = options.option(
    'exponential',
    'fixed, exponential, polynomial (a square root, to 0 at --max_steps) or '
    'linear (to --end_learning_rate after --num_epochs_per_decay); adam is '
    'fixed without --decay_adam.',
    'rate',
  )
  decay_adam: bool = options.option(
    False, 'Let the learning rate of adam decay as well.', 'rate'
  )
  end_learning_rate: float = options.option(
    0.0, 'Where the linear decay ends.', 'rate'
  )
  num_epochs_per_decay: float = options.option(
    20.0, 'Epochs between two drops of the exponential decay.', 'rate'
  )
  learning_rate_decay_factor: float = options.option(
    0.1, 'Factor of a drop of the exponential decay.', 'rate'
  )
  momentum: float = options.option(0.9, 'Of momentum and rmsprop.', 'rate')
  moving_average_decay: float = options.option(
    0.9999, 'Of the averages of the parameters, at most.', 'rate'
  )

  @property
  def optimizer_name(self):
    """The optimizer without its options."""
    return spelling.split(self.optimizer)[0]

  def update_rule(self) -> optimizers.Optimizer:
    """The optimizer that --optimizer describes.

    Raises:
      errors.ConfigError: it describes none.
    """
    with errors.as_config_error():
      return optimizers.parse(self.optimizer, self.momentum)

  @property
  def num_workers(self):
    """Nodes that compute gradients: virtual ones, or one a device."""
    if self.num_nodes > 0:
      return self.num_nodes
    return self.num_gpus * self.num_processes

  @property
  def num_processes(self):
    """Processes that share the nodes."""
    return len(self.tasks.jobs['worker']) if self.tasks else 1

  def validate(self):
    """Raises `errors.ConfigError` for the first field out of its range."""
    super().validate()
    options.choice('optimizer', self.optimizer_name, optimizers.OPTIMIZERS)
    self.update_rule()
    decay = 'learning_rate_decay_type'
    options.choice(decay, self.learning_rate_decay_type, schedules.DECAY_TYPES)
    options.at_least('num_gpus', self.num_gpus, 1)
    options.at_least('save_iter', self.save_iter, 1)
    options.at_least('clip_factor', self.clip_factor, 0)
    options.at_least('floating_grad_epoch', self.floating_grad_epoch, 0)
    options.at_least('initial_learning_rate', self.initial_learning_rate, 0)
    options.at_least('num_epochs_per_decay', self.num_epochs_per_decay, 0)
    options.at_least(
      'learning_rate_decay_factor', self.learning_rate_decay_factor, 0
    )
    options.at_least('end_learning_rate', self.end_learning_rate, 0)
    options.in_range('momentum', self.momentum, 0, 1)
    options.in_range('moving_average_decay', self.moving_average_decay, 0, 1)
    options.at_least('save_tower', self.save_tower, -1)
    if self.save_tower >= self.num_workers:
      raise errors.ConfigError(
        f'save_tower: expected -1 or a node from 0 to {self.num_workers - 1}, '
        f'received {self.save_tower}. Ask for fewer, or set --num_nodes.'
      )
    if self.num_workers % self.num_processes:
      raise errors.ConfigError(
        f'num_nodes: expected a multiple of the {self.num_processes} processes '
        f'of --worker_hosts, received {self.num_workers}. Leave it out, or '
        'give every process as many nodes.'
      )
    self._check_batch()
    self.gradient_codes()
    if self.bn_statistics == 'per_device' and self.save_tower >= 0:
      raise errors.ConfigError(
        'save_tower: expected -1 beside --bn_statistics=per_device, received '
        f"{self.save_tower}: the other devices' statistics would be lost. "
        'Leave one of the two out.'
      )
    if self.bn_statistics == 'synchronized':
      self._check_synchronized()

  def _check_synchronized(self):
    # The nodes of a device, and the parts of a node, run one after the other.
    most = self.num_processes if self.tasks else self.num_gpus
    if self.num_workers > most:
      raise errors.ConfigError(
        f'num_nodes: expected at most {most} beside '
        '--bn_statistics=synchronized, one a '
        f'{"process" if self.tasks else "device"}, received '
        f'{self.num_workers}: nodes that share one run one after the other. '
        'Give each its own, or use --bn_statistics=averaged.'
      )
    if self.gradient_accumulation_steps > 1:
      raise errors.ConfigError(
        'gradient_accumulation_steps: expected 1 beside '
        '--bn_statistics=synchronized, received '
        f'{self.gradient_accumulation_steps}: parts run one after the other. '
        'Use --bn_statistics=averaged.'
      )

  def _check_batch(self):
    each = ''
    if self.gradient_accumulation_steps > 1:
      each = f' times {self.gradient_accumulation_steps} accumulation steps'
    if self.local_steps > 1:
      each = f' times {self.local_steps} local steps'
    parts = self.gradient_accumulation_steps * self.local_steps
    parts *= self.num_workers
    if self.batch_size % parts == 0:
      return
    more = self.batch_size - self.batch_size % parts + parts
    raise errors.ConfigError(
      f'batch_size: expected a multiple of the {self.num_workers} nodes{each}, '
      f'received {self.batch_size}. Use --batch_size={more}, or another '
      '--num_nodes.'
    )
