"""Trains ResNet-18 for small images, as in DJL's chapter on several GPUs."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from typing import Any

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import train as trainers
from terngrad.config import options
from terngrad.config import training as configs

if TYPE_CHECKING:
  from terngrad.training import execution as execution_types
  from terngrad.training import run as run_types

epochs = lazy.module('terngrad.report.epochs')
net_summary = lazy.module('terngrad.report.net_summary')
records = lazy.module('terngrad.training.records')
start = lazy.module('terngrad.training.start')

USAGE = """\
{program}: trains ResNet-18 on Fashion-MNIST.

  {program} --data_dir=D --train_dir=T --num_gpus=2

The batch is split evenly over the devices. One log line per epoch has loss and
accuracy of training and test, and a line at the end the seconds per epoch. A
plot in --train_dir shows the accuracy by epoch, with that of the runs of
--compare.
--codec=ternary sends gradients as codes of -1, 0 and +1. The same command
continues a run that was stopped. Fill D with:
  terngrad convert dataset --dataset_name=fashion_mnist --dataset_dir=D
"""

_REPLACED = ('batch_size', 'epoch_size', 'initial_learning_rate')
DEFAULTS = {
  'dataset_name': 'fashion_mnist',
  'eval_subsets': ('test',),
  'image_size': 28,
  'learning_rate_decay_type': 'fixed',
  'net': 'small_resnet_18',
  'num_epochs': 10,
  'optimizer': 'gd',
  'weight_decay': 0.0,
}
# Batch size and learning rate per device.
_BATCH, _RATE = 256, 0.1
CHART = 'accuracy.svg'

option = options.option
_Options: Any = command.drop_options(configs.TrainConfig, _REPLACED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resnet18Flags(_Options):
  """The configuration's flags, and those scaled by the number of devices."""

  batch_size: int = option(
    0, f'Examples per step; 0: {_BATCH} for each of --num_gpus.', 'data'
  )
  dataset_limit: int = option(
    0, 'Examples per epoch; 0: all of --subset.', 'data'
  )
  learning_rate: float = option(
    0.0, f'Learning rate; 0: {_RATE} times --num_gpus.', 'optimizer'
  )
  print_net: bool = option(
    False, 'Print the layers of the net before training.', 'model'
  )
  compare: tuple[str, ...] = option(
    (),
    'Folders of other runs to draw in the same plot, separated by commas. Put '
    'a folder with commas or outer spaces in double quotes.',
    'run',
  )


def to_config(values: Resnet18Flags) -> configs.TrainConfig:
  """Builds the training configuration from the flags.

  Raises:
    terngrad.cli.flags.UsageError: flags contradict each other.
    terngrad.errors.ConfigError: a flag has an invalid value.
  """
  trainers.check_length(values)
  command.at_least(0, values, 'batch_size', 'dataset_limit', 'learning_rate')
  return command.build_config(
    values,
    configs.TrainConfig,
    {},
    batch_size=values.batch_size or _BATCH * values.num_gpus,
    epoch_size=values.dataset_limit,
    initial_learning_rate=values.learning_rate or _RATE * values.num_gpus,
  )


def train(values: Resnet18Flags) -> int:
  """Trains as the flags specify and plots it; returns the exit code."""
  config = to_config(values)

  def hooks(run: 'run_types.Run') -> 'execution_types.Hooks':
    if config.cluster.writes_files:
      count = len(run.replicas)
      command.say(f'Training on: {count} device{"s" if count > 1 else ""}')
      if values.print_net:
        command.say(net_summary.text(run.model))
    return run.hooks

  outcome = start.train(config, command.say, sys.stderr.isatty(), hooks)
  if config.cluster.writes_files:
    _conclude(config, values.compare)
  return trainers.report_end(config, outcome)


def _conclude(config: configs.TrainConfig, others: Sequence[str]) -> None:
  """Logs the final accuracy and writes the plot."""
  folder, tested = config.run.train_dir, next(iter(config.run.eval_subsets), '')
  rows = epochs.rows(records.read(folder), config.data.batch_size, tested)
  if not rows:
    return
  last = rows[-1]
  accuracy = f'{tested} acc {last["test_accuracy"]:.4f}, ' if tested else ''
  command.say(
    f'{datetime.now()}: {accuracy}train acc {last["accuracy"]:.4f}, '
    f'{last["cumulative_time_spent"] / last["epoch"]:.1f} s/epoch'
  )
  name, *other_names = epochs.names([folder, *others])
  runs = {name: rows}
  for other, name in zip(others, other_names, strict=True):
    found = epochs.rows(records.read(other), config.data.batch_size, tested)
    if found:
      runs[name] = found
    else:
      command.say(f'{other}: has no epochs to draw')
  path = os.path.join(folder, CHART)
  epochs.chart(runs, tested).savefig(path, metadata={'Date': None})
  command.say(f'Accuracy by epoch: {path}')


COMMAND = command.Command(
  USAGE,
  Resnet18Flags,
  train,
  DEFAULTS,
  packages=trainers.PACKAGES,
  flag_names={
    'epoch_size': 'dataset_limit',
    'initial_learning_rate': 'learning_rate',
  },
)
