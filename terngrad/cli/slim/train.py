"""Trains a classifier with TF-Slim's flags and compressed gradients."""

import dataclasses
from typing import Any

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli import train as trainers
from terngrad.cli.slim import cluster
from terngrad.cli.slim import names
from terngrad.config import options
from terngrad.config import servers
from terngrad.config import training as configs

tf = lazy.module('tensorflow')

USAGE = """\
{program}: trains a net of TF-Slim on any data set.

  {program} --train_dir=T --dataset_dir=D \\
      --dataset_name=cifar10 --model_name=cifarnet --num_clones=2 \\
      --grad_bits=1 --clip_factor=2.5

--batch_size is the batch size of a clone; every clone is one node on a separate
device. --grad_bits=1 sends gradients as codes of -1, 0 and +1. The same command
continues a run that was stopped.

On several machines, one process for every host of the two lists:

  ... --job_name=worker --task=0 --worker_replicas=2 --num_ps_tasks=1 \\
      --sync_replicas --replicas_to_aggregate=2 --ps_hosts=a:2222 \\
      --worker_hosts=b:2222,c:2222

With parameter servers but without --sync_replicas workers do not wait for each
other. Without parameter servers workers exchange codes with each other, which
needs --sync_replicas.
"""

# Maps TF-Slim's names of flags to fields of the configuration.
_NAMES = {
  'checkpoint_path': 'pretrained_model_checkpoint_path',
  'dataset_dir': 'data_dir',
  'dataset_split_name': 'subset',
  'learning_rate': 'initial_learning_rate',
  'max_number_of_steps': 'max_steps',
  'model_name': 'net',
  'num_preprocessing_threads': 'num_preprocess_threads',
  'preprocessing_name': 'preprocessing',
  'task': 'task_id',
  'train_image_size': 'image_size',
}
# Options that TF-Slim's flags set in another form, and --recipe, whose
# optimizers are none of TF-Slim's.
_REPLACED = (
  *_NAMES.values(),
  'decay_adam',
  'exchange',
  'fine_tune',
  'num_gpus',
  'recipe',
  'restart_step',
)

_FOREVER = 2**31 - 1  # steps

option = options.option
_Options: Any = command.drop_options(configs.TrainConfig, _REPLACED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlimTrainFlags(_Options):
  """TF-Slim's flags, and those of the configuration."""

  train_dir: str = option(
    '',
    'Folder for checkpoints and records; a run that it holds continues.',
    'run',
  )
  dataset_dir: str = option('', 'Folder of the data set.', 'data')
  dataset_split_name: str = option('train', 'Split to train on.', 'data')
  batch_size: int = option(32, 'Examples per step and clone.', 'data')
  train_image_size: int = option(
    0, 'Height and width of the input; 0: the default of the net.', 'data'
  )
  preprocessing_name: str = option(
    '', 'Preprocessing; empty: the default of the net.', 'data'
  )
  num_preprocessing_threads: int = option(
    4,
    'Accepted without effect: TensorFlow sets the number of threads.',
    'data',
  )
  model_name: str = option('inception_v3', 'Net to train.', 'model')
  weight_decay: float = option(0.00004, 'L2 coefficient.', 'model')
  dropout_keep_prob: float = option(
    0.0,
    'Share of units that dropout keeps; 0: the default of the net.',
    'model',
  )
  label_smoothing: float = option(
    0.0, 'Share of each label that is spread over all classes.', 'model'
  )
  max_number_of_steps: int = option(
    0, 'Steps to train; 0: train until stopped.', 'run'
  )
  checkpoint_path: str = option(
    '', 'Checkpoint, or folder of checkpoints, to start from.', 'run'
  )
  log_every_n_steps: int = option(
    10, 'Accepted without effect: the log has a line every 10 steps.', 'run'
  )
  save_summaries_secs: int = option(
    600,
    'With parameter servers: seconds between histograms, besides those of '
    '--save_iter; without, no effect.',
    'run',
  )
  save_interval_secs: int = option(
    600,
    'With parameter servers: seconds between checkpoints, besides those of '
    '--save_iter; without, no effect.',
    'run',
  )
  num_clones: int = option(
    1, 'Number of devices, each with one node.', 'devices'
  )
  clone_on_cpu: bool = option(False, 'Use no GPU.', 'devices')
  master: str = option(
    '', 'Refused: give --worker_hosts and --ps_hosts.', 'cluster'
  )
  worker_replicas: int = option(
    1, 'Number of worker processes, each with --num_clones.', 'cluster'
  )
  num_ps_tasks: int = option(0, 'Number of parameter servers.', 'cluster')
  task: int = option(0, 'Index of this process in its job, from 0.', 'cluster')
  sync_replicas: bool = option(
    False, 'Let workers wait for each other at every step.', 'cluster'
  )
  replicas_to_aggregate: int = option(
    1,
    'With --sync_replicas: number of workers whose gradients make an update; '
    'without parameter servers all of them.',
    'cluster',
  )
  optimizer: str = option(
    'rmsprop',
    'adadelta, adagrad, adam, ftrl, momentum, sgd or rmsprop.',
    'optimizer',
  )
  learning_rate: float = option(0.01, 'Learning rate.', 'optimizer')
  end_learning_rate: float = option(
    0.0001, 'Learning rate at the end of the polynomial decay.', 'optimizer'
  )
  learning_rate_decay_type: str = option(
    'exponential',
    'Schedule of the learning rate: fixed, exponential or polynomial.',
    'optimizer',
  )
  learning_rate_decay_factor: float = option(
    0.94, 'Factor of each drop of the exponential decay.', 'optimizer'
  )
  num_epochs_per_decay: float = option(
    2.0,
    'Epochs between two drops of the exponential decay, or the length of the '
    'polynomial decay in epochs.',
    'optimizer',
  )
  momentum: float = option(
    0.9, 'Momentum of --optimizer=momentum.', 'optimizer'
  )
  opt_epsilon: float = option(
    1.0, 'Epsilon of adadelta, adam and rmsprop.', 'optimizer'
  )
  adadelta_rho: float = option(0.95, 'Decay of adadelta.', 'optimizer')
  adagrad_initial_accumulator_value: float = option(
    0.1, 'Initial accumulator of adagrad.', 'optimizer'
  )
  adam_beta1: float = option(
    0.9, 'Decay of the first moment of adam.', 'optimizer'
  )
  adam_beta2: float = option(
    0.999, 'Decay of the second moment of adam.', 'optimizer'
  )
  ftrl_learning_rate_power: float = option(
    -0.5, 'Learning rate power of ftrl.', 'optimizer'
  )
  ftrl_initial_accumulator_value: float = option(
    0.1, 'Initial accumulator of ftrl.', 'optimizer'
  )
  ftrl_l1: float = option(0.0, 'L1 strength of ftrl.', 'optimizer')
  ftrl_l2: float = option(0.0, 'L2 strength of ftrl.', 'optimizer')
  rmsprop_momentum: float = option(0.9, 'Momentum of rmsprop.', 'optimizer')
  rmsprop_decay: float = option(
    0.9, 'Decay of the mean square of rmsprop.', 'optimizer'
  )
  moving_average_decay: float = option(
    0.0,
    'Decay of the moving averages of the parameters; 0: 0.9999, as in 2017.',
    'optimizer',
  )


# Maps TF-Slim's optimizers to (our name, {option: flag}).
_OPTIMIZERS: dict[str, tuple[str, dict[str, str]]] = {
  'adadelta': ('adadelta', {'rho': 'adadelta_rho', 'epsilon': 'opt_epsilon'}),
  'adagrad': ('adagrad', {'initial': 'adagrad_initial_accumulator_value'}),
  'adam': (
    'adam',
    {'beta1': 'adam_beta1', 'beta2': 'adam_beta2', 'epsilon': 'opt_epsilon'},
  ),
  'ftrl': (
    'ftrl',
    {
      'power': 'ftrl_learning_rate_power',
      'initial': 'ftrl_initial_accumulator_value',
      'l1': 'ftrl_l1',
      'l2': 'ftrl_l2',
    },
  ),
  'momentum': ('momentum', {'momentum': 'momentum'}),
  'rmsprop': (
    'rmsprop',
    {
      'momentum': 'rmsprop_momentum',
      'decay': 'rmsprop_decay',
      'epsilon': 'opt_epsilon',
    },
  ),
  'sgd': ('gd', {}),
}


def to_config(values: SlimTrainFlags) -> configs.TrainConfig:
  """Builds the training configuration from the flags.

  Returns:
    With parameter servers a `servers.ServerConfig`.

  Raises:
    flags.UsageError: a flag is not supported.
    terngrad.errors.ConfigError: hosts are missing or invalid.
  """
  names.check(values)
  if values.optimizer not in _OPTIMIZERS:
    raise flags.UsageError(
      f'--optimizer: expected one of {", ".join(_OPTIMIZERS)}, received '
      f'{values.optimizer!r}. Use one of these.'
    )
  name, settings = _OPTIMIZERS[values.optimizer]
  text = ','.join(f'{k}={getattr(values, v)}' for k, v in settings.items())
  decay = values.learning_rate_decay_type
  kind = cluster.run_kind(values)
  config = command.build_config(
    values,
    kind.config_class,
    _NAMES,
    **names.net_fields(values, values.train_image_size),
    **kind.fields,
    batch_size=values.batch_size * values.num_clones * kind.processes,
    num_gpus=values.num_clones,
    max_steps=values.max_number_of_steps or _FOREVER,
    optimizer=f'{name}:{text}',
    decay_adam=True,
    # TF-Slim restores only the model's variables.
    restart_step=bool(values.checkpoint_path or values.pretrained_weights),
    # TF-Slim's polynomial has power 1 and ends after --num_epochs_per_decay,
    # not at the last step: it is our `linear`.
    learning_rate_decay_type={'polynomial': 'linear'}.get(decay, decay),
    moving_average_decay=values.moving_average_decay or 0.9999,
  )
  cluster.check_numbers(values, config)
  return config


def train(values: SlimTrainFlags) -> int:
  """Trains as the flags specify; returns the exit code."""
  config = to_config(values)
  if values.clone_on_cpu:
    tf.config.set_visible_devices([], 'GPU')
  if isinstance(config, servers.ServerConfig):
    return trainers.serve_or_train(config)
  return trainers.train(config)


COMMAND = command.Command(
  USAGE,
  SlimTrainFlags,
  train,
  ends_process=True,
  flag_names=names.flag_names(_NAMES),
)
