"""Trains ResNet-50 from an image database, with Caffe2's flags."""

import contextlib
import dataclasses
import os
import re
import sys
from typing import TYPE_CHECKING
from typing import Any

from slim import spelling
from terngrad import errors
from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import export
from terngrad.cli import flags
from terngrad.cli import train as trainers
from terngrad.cli.trainers import caffe2_flags
from terngrad.cluster import interfaces
from terngrad.config import cluster as cluster_options
from terngrad.config import options
from terngrad.config import training as configs

if TYPE_CHECKING:
  from terngrad.report import epoch_log as epoch_log_types
  from terngrad.training import run as run_types

databases = lazy.module('slim.datasets.files.databases')
devices = lazy.module('terngrad.cluster.devices')
epoch_log = lazy.module('terngrad.report.epoch_log')
epochs = lazy.module('terngrad.report.epochs')
start = lazy.module('terngrad.training.start')

USAGE = """\
{program}: trains ResNet-50 from an image database.

  {program} --train_data=D/train_lmdb --test_data=D/test_lmdb \\
      --train_dir=T --num_gpus=2 --batch_size=64 --epoch_size=1280 \\
      --num_labels=2 --num_epochs=10 --base_learning_rate=0.0256

--batch_size is the total over all devices of this machine. After each epoch the
test images are scored and a row is added to the log, a CSV file in --train_dir.
--codec=ternary sends gradients as codes of -1, 0 and +1. The same command
continues a run that was stopped.

Several machines find each other through a folder that all can write to, or
through a Redis server, by --run_id:

  ... --num_shards=2 --shard_id=0 --run_id=first --file_store_path=/shared
  ... --num_shards=2 --shard_id=1 --run_id=first --redis_host=10.0.0.1

The other flags of Caffe2's trainer are accepted too. A line of the log names
each given flag that has no effect, with the reason.

Without --train_dir the files are in a folder of the working directory named by
--run_id, or resnet50_trainer. Each shard uses port --cluster_port plus its
number. Make a database with: terngrad convert database.
"""

_REPLACED = (
  'batch_size',
  'cluster',
  'data_dir',
  'dataset_name',
  'dtype',
  'eval_subsets',
  'exchange',
  'initial_learning_rate',
  'num_classes',
  'rendezvous_dir',
  'rendezvous_processes',
  'subset',
  'task_id',
)
DEFAULTS = {
  'batch_norm_decay': 0.9,
  'epoch_size': 1500000,
  'image_size': 227,
  'learning_rate_decay_factor': 0.1,
  'net': 'resnet_v1_50',
  'num_epochs': 1000,
  'num_epochs_per_decay': 30.0,
  'optimizer': 'nesterov:momentum=0.9',
  'preprocessing': 'caffe2',
  'weight_decay': 1e-4,
}
_DATABASES = ('lmdb', 'leveldb')
TFRECORD = 'tfrecord'
_CHANNELS = 3
# The batch size for which --base_learning_rate holds if it is scaled.
_SCALED_FROM = 256
# Folder of a run without --train_dir and --run_id.
_FOLDER = 'resnet50_trainer'
_RUN_ID = re.compile(r'\w[\w.+-]{0,99}', re.ASCII)
_GPUS = re.compile(r'[0-9]{1,4}(,[0-9]{1,4})*', re.ASCII)

option = options.option
_Options: Any = command.drop_options(configs.TrainConfig, _REPLACED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resnet50Flags(caffe2_flags.Caffe2Flags, _Options):
  """Caffe2's flags, and those of the configuration."""

  train_data: str = option(
    '',
    'Database to train on; for TFRecord files FOLDER/train-* it is '
    'FOLDER/train.',
    'data',
  )
  test_data: str = option(
    '', 'The same for images to score after each epoch; empty: none.', 'data'
  )
  db_type: str = option(
    'lmdb', 'Kind of the databases: lmdb, leveldb or tfrecord.', 'data'
  )
  batch_size: int = option(
    32, 'Examples per step of this machine, over all its devices.', 'data'
  )
  num_labels: int = option(
    1000, 'Classes of a database; TFRecord files define theirs.', 'data'
  )
  num_channels: int = option(3, 'Channels of the images; must be 3.', 'data')
  gpus: str = option(
    '', 'GPUs to use, such as 0,1; empty: the first --num_gpus.', 'devices'
  )
  base_learning_rate: float = option(0.1, 'Learning rate.', 'optimizer')
  scale_learning_rate: bool = option(
    False,
    'Scale the learning rate to the batch size over all machines: '
    f'--base_learning_rate is for a batch of {_SCALED_FROM}.',
    'optimizer',
  )
  num_shards: int = option(1, 'Number of machines.', 'cluster')
  shard_id: int = option(0, 'Index of this machine, from 0.', 'cluster')
  redis_host: str = option(
    '', 'Redis server through which machines find each other.', 'cluster'
  )
  redis_port: int = option(6379, 'Port of the Redis server.', 'cluster')
  file_store_path: str = option(
    '', 'Shared folder through which machines find each other.', 'cluster'
  )


def to_config(values: Resnet50Flags) -> configs.TrainConfig:
  """Builds the training configuration from the flags.

  Returns:
    A configuration whose batch size is that of all machines together.

  Raises:
    flags.UsageError: a flag is not supported.
    terngrad.errors.ConfigError: a flag has an invalid value.
  """
  command.require(values, 'train_data')
  trainers.check_length(values)
  if values.num_channels != _CHANNELS:
    raise flags.UsageError(
      f'--num_channels: expected {_CHANNELS}, as images are read in colour, '
      f'received {values.num_channels}. Leave it out.'
    )
  options.at_least('num_shards', values.num_shards, 1)
  batch_size = values.batch_size * values.num_shards
  rate = values.base_learning_rate
  if values.scale_learning_rate:
    rate *= batch_size / _SCALED_FROM
  chosen = _gpus(values.gpus)
  if chosen and values.num_gpus not in (1, len(chosen)):
    raise flags.UsageError(
      f'--num_gpus: expected {len(chosen)}, the number of --gpus, received '
      f'{values.num_gpus}. Leave one of the two out.'
    )
  if values.use_cpu and (chosen or values.devices):
    raise flags.UsageError(
      '--use_cpu: expected no --gpus and no --devices beside it, received '
      f'{values.gpus or ",".join(values.devices)}. Give the number of CPU '
      'devices by --num_gpus.'
    )
  return command.build_config(
    values,
    configs.TrainConfig,
    {},
    **_data(values),
    **_rendezvous(values),
    **caffe2_flags.options_of(values),
    train_dir=values.train_dir or _folder(values.run_id),
    batch_size=batch_size,
    initial_learning_rate=rate,
    num_gpus=len(chosen) or values.num_gpus,
  )


def _folder(run_id: str) -> str:
  """Returns the folder of a run without --train_dir."""
  return os.path.join(os.curdir, _checked(run_id) if run_id else _FOLDER)


def _checked(run_id: str) -> str:
  """Returns a valid name of a run."""
  if not _RUN_ID.fullmatch(run_id):
    raise flags.UsageError(
      '--run_id: expected 1 to 100 letters, digits and . + - _, without one of '
      f'. + - at the start, received {run_id[:200]!r}. Give all machines of a '
      'run the same name, and every run a different one.'
    )
  return run_id


def _gpus(text: str) -> list[int]:
  """Parses the GPU numbers of --gpus."""
  if text and not _GPUS.fullmatch(text):
    raise flags.UsageError(
      f'--gpus: expected numbers separated by commas, as 0,1; received '
      f'{text[:200]!r}. Correct it, or use --num_gpus.'
    )
  found = [int(number) for number in text.split(',') if number]
  if len(set(found)) < len(found):
    raise flags.UsageError(
      f'--gpus: expected every GPU once, received {text[:200]}. Remove the '
      'repeated number.'
    )
  return found


def _data(values: Resnet50Flags) -> dict[str, Any]:
  """Returns the options that select the data."""
  options.choice('db_type', values.db_type, (*_DATABASES, TFRECORD))
  folder, subset = os.path.split(os.path.normpath(values.train_data))
  folder = folder or os.curdir
  scored: tuple[str, ...] = ()
  is_database = values.db_type in _DATABASES
  if values.test_data:
    scored = (os.path.relpath(values.test_data, folder),)
    if not is_database and os.path.dirname(scored[0]):
      raise flags.UsageError(
        '--test_data: expected TFRecord files in the folder of --train_data, '
        f'received {values.test_data}. Put both into one folder.'
      )
  return {
    'data_dir': folder,
    'subset': subset,
    'eval_subsets': scored,
    'dataset_name': 'image_db' if is_database else 'images',
    'num_classes': values.num_labels if is_database else 0,
  }


def _rendezvous(values: Resnet50Flags) -> dict[str, Any]:
  """Returns the options that select how the machines find each other."""
  if not 0 <= values.shard_id < values.num_shards:
    raise flags.UsageError(
      f'--shard_id: expected a number from 0 to {values.num_shards - 1}, '
      f'received {values.shard_id}. Give each of the --num_shards machines a '
      'different number.'
    )
  if values.num_shards == 1:
    return {}
  locations = [values.redis_host, values.file_store_path]
  if len([location for location in locations if location]) != 1:
    raise flags.UsageError(
      '--file_store_path or --redis_host: expected one of them beside '
      f'--num_shards={values.num_shards}, received '
      f'{"both" if all(locations) else "none"}. Give exactly one, the same on '
      'all machines.'
    )
  run_id = _checked(values.run_id)
  # Shards on one machine need different ports.
  port = values.cluster_port + values.shard_id
  fields = {
    'exchange': 'collective',
    'rendezvous_processes': values.num_shards,
    'task_id': values.shard_id,
    'cluster_port': port,
  }
  if values.distributed_interfaces and not values.own_address:
    address = interfaces.address(
      values.distributed_interfaces, 'distributed_interfaces'
    )
    fields['own_address'] = f'{address}:{port}'
  if values.file_store_path:
    folder = os.path.join(values.file_store_path, run_id)
    return fields | {'cluster': 'rendezvous', 'rendezvous_dir': folder}
  host = values.redis_host
  host = f'[{host}]' if ':' in host else host
  return fields | {'cluster': f'redis:redis://{host}:{values.redis_port}'}


def _cluster(values: Resnet50Flags) -> cluster_options.ClusterOptions:
  """Returns the options of the rendezvous, before others are validated."""
  with contextlib.suppress(flags.UsageError):
    return command.build_config(
      values, cluster_options.ClusterOptions, {}, **_rendezvous(values)
    )
  return cluster_options.ClusterOptions()


def log_stem(values: Resnet50Flags, config: configs.TrainConfig) -> str:
  """Returns the part of the log's file name that describes the run.

  Args:
    values: the flags.
    config: from `to_config`.

  Returns:
    For example 'resnet50_gpu2_b64_L1000_lr0.10_v2'.
  """
  net, _ = spelling.split(config.model.net)
  name = 'resnet50' if net == DEFAULTS['net'] else net
  return (
    f'{name}_gpu{config.devices.count}_b{config.data.batch_size}_'
    f'L{values.num_labels}_lr{values.base_learning_rate:.2f}_v2'
  )


def hooks(
  values: Resnet50Flags, config: configs.TrainConfig, run: 'run_types.Run'
) -> 'epoch_log_types.EpochLog':
  """Returns hooks that log like Caffe2's trainer and write an epoch log.

  Args:
    values: the flags.
    config: from `to_config`.
    run: the run whose hooks are replaced.
  """
  path = epochs.path_in(config.run.train_dir, log_stem(values, config))
  return epoch_log.EpochLog(path, options.by_name(values), config.run, run)


def train(values: Resnet50Flags) -> int:
  """Trains as the flags say; returns the exit code."""
  with start.share_failures(_cluster(values)):
    config = to_config(values)
    _check_database(values)
    chosen = _gpus(values.gpus)
    if chosen:
      devices.choose_gpus(chosen)
    if values.use_cpu:
      devices.hide_gpus()
    caffe2_flags.set_environment(values)
  with start.share_failures(config.cluster):
    config.validate()
  if not values.train_dir and config.cluster.writes_files:
    _check_default_folder(values, config.run.train_dir)
    command.say(f'files of this run: {config.run.train_dir}')
  for line in caffe2_flags.remarks(values):
    command.say(line)
  outcome = start.train(
    config,
    command.say,
    sys.stderr.isatty(),
    lambda run: hooks(values, config, run),
  )
  code = trainers.report_end(config, outcome)
  if code == command.DONE and config.cluster.writes_files:
    _save_model(values, config)
  return code


def _save_model(values: Resnet50Flags, config: configs.TrainConfig) -> None:
  """Writes the trained net if --save_model_name is given.

  Raises:
    errors.TrainingError: it cannot be written; the run itself is complete.
  """
  if not values.save_model_name:
    return
  folder = config.run.train_dir
  request = export.ExportFlags(
    checkpoint_dir=folder,
    output=os.path.join(folder, f'{values.save_model_name}.keras'),
    image_size=config.data.image_size,
  )
  try:
    export.act(request)
  except errors.ConfigError as error:
    raise errors.TrainingError(f'--save_model_name: {error}') from error


def _check_default_folder(values: Resnet50Flags, folder: str) -> None:
  """Refuses to continue a run that the command line does not name."""
  holds_run = os.path.exists(os.path.join(folder, 'checkpoint'))
  if holds_run and not (values.run_id or values.overwrite):
    raise flags.UsageError(
      f'--train_dir: expected a folder without a run, received {folder}, the '
      'default, which has one. Give --run_id=NAME for a new run, '
      f'--train_dir={folder} to continue, or --overwrite.'
    )


def _check_database(values: Resnet50Flags) -> None:
  """Refuses a database whose kind differs from --db_type."""
  if values.db_type not in _DATABASES:
    return
  for path in filter(None, (values.train_data, values.test_data)):
    kind = databases.kind_of(path)
    if kind != values.db_type:
      raise flags.UsageError(
        f'--db_type: expected {kind}, the kind of {path}, received '
        f'{values.db_type}. Give --db_type={kind}.'
      )


COMMAND = command.Command(
  USAGE,
  Resnet50Flags,
  train,
  DEFAULTS,
  packages=trainers.PACKAGES,
  required=('train_data',),
  flag_names={
    'eval_subsets': 'test_data',
    'initial_learning_rate': 'base_learning_rate',
    'rendezvous_dir': 'file_store_path',
    'rendezvous_processes': 'num_shards',
    'task_id': 'shard_id',
  },
)
