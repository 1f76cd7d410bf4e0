"""Evaluates a classifier, with TF-Slim's flags."""

import dataclasses
import os
from typing import Any

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli.slim import names
from terngrad.config import evaluation as evaluation_config
from terngrad.config import options
from terngrad.config import training as configs

evaluation = lazy.module('terngrad.training.evaluation')

USAGE = """\
{program}: scores a checkpoint of a TF-Slim training once.

  {program} --checkpoint_path=T --eval_dir=E \\
      --dataset_name=cifar10 --dataset_split_name=test --dataset_dir=D \\
      --model_name=cifarnet

--checkpoint_path is the prefix of a checkpoint, or a folder, whose newest
checkpoint is scored.
"""

# Maps TF-Slim's names of flags to fields of the configuration.
_NAMES = {
  'checkpoint_path': 'checkpoint_dir',
  'dataset_dir': 'data_dir',
  'dataset_split_name': 'subset',
  'eval_image_size': 'image_size',
  'model_name': 'net',
  'num_preprocessing_threads': 'num_preprocess_threads',
  'preprocessing_name': 'preprocessing',
}
# Maps names of metrics to TF-Slim's names.
_SCORES = {'precision_at_1': 'Accuracy', 'recall_at_5': 'Recall_5'}
# Options that TF-Slim's flags set in another form, or that do not apply.
_REPLACED = (
  *_NAMES.values(),
  'eval_interval_secs',
  'max_steps',
  'num_examples',
  'restore_avg_var',
  'run_once',
)

_ALL = 2**31 - 1  # examples, or steps

option = options.option
_Options: Any = command.drop_options(configs.EvalConfig, _REPLACED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlimEvaluateFlags(_Options):
  """TF-Slim's flags, and those of the configuration."""

  checkpoint_path: str = option(
    '', 'Checkpoint to score, or a folder, for its newest one.', 'run'
  )
  eval_dir: str = option(
    '',
    "Folder for records; if it is empty or the checkpoint's folder, `eval` in "
    "the checkpoint's folder.",
    'run',
  )
  dataset_dir: str = option('', 'Folder of the data set.', 'data')
  dataset_split_name: str = option('test', 'Split to score.', 'data')
  batch_size: int = option(100, 'Examples per batch.', 'data')
  max_num_batches: int = option(0, 'Batches to score at most; 0: all.', 'data')
  eval_image_size: int = option(
    0,
    'Height and width of the input; 0: that of the training, or the default of '
    'the net.',
    'data',
  )
  preprocessing_name: str = option(
    '',
    'Preprocessing; empty: that of the training, or the default of the net.',
    'data',
  )
  num_preprocessing_threads: int = option(
    4,
    'Accepted without effect: TensorFlow sets the number of threads.',
    'data',
  )
  model_name: str = option('inception_v3', 'Net to score.', 'model')
  dropout_keep_prob: float = option(
    0.0, 'Accepted without effect: nothing is dropped.', 'model'
  )
  moving_average_decay: float = option(
    0.0, 'Above 0: read the moving averages of the parameters.', 'model'
  )
  master: str = option(
    '', 'Refused: evaluation runs on this machine only.', 'devices'
  )


def to_config(values: SlimEvaluateFlags) -> configs.EvalConfig:
  """Builds the evaluation's configuration from the flags.

  Raises:
    flags.UsageError: a flag is not supported.
  """
  names.check(values)
  folder = evaluation_config.checkpoint_folder(values.checkpoint_path)
  eval_dir = values.eval_dir or folder
  if os.path.realpath(eval_dir) == os.path.realpath(folder):
    eval_dir = os.path.join(eval_dir, 'eval')
  config = command.build_config(
    values,
    configs.EvalConfig,
    _NAMES,
    **names.net_fields(values, values.eval_image_size),
    eval_dir=eval_dir,
    num_examples=values.max_num_batches * values.batch_size or _ALL,
    max_steps=_ALL,
    restore_avg_var=values.moving_average_decay > 0,
    run_once=True,
  )
  # Values that are only the net's defaults yield to those of the training.
  flags_of = {
    'image_size': values.eval_image_size,
    'preprocessing': values.preprocessing_name,
  }
  given = {
    name
    for name in options.by_name(config)
    if flags_of.get(name, config.is_given(name))
  }
  return dataclasses.replace(config, given=frozenset(given))


def score(values: SlimEvaluateFlags) -> None:
  """Evaluates as the flags specify."""
  found = evaluation.evaluate(to_config(values), command.say)
  command.say(
    ' '.join(
      f'eval/{_SCORES.get(name, name)}[{value:.4f}]'
      for name, value in found.values.items()
    )
  )


COMMAND = command.Command(
  USAGE,
  SlimEvaluateFlags,
  score,
  required=('checkpoint_path',),
  flag_names=names.flag_names(_NAMES),
)
