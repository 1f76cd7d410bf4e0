"""Options of a run: its length, its files and its initial values."""

import dataclasses

from terngrad import aliases
from terngrad.config import options
from terngrad.tracking import trackers

__getattr__ = aliases.renamed_names(
  __name__, Run='RunOptions', Start='StartOptions'
)


# Options that say how to restore the file to start from.
_NEED_A_PATH = (
  'fine_tune',
  'restart_step',
  'checkpoint_exclude_scopes',
  'ignore_missing_vars',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(options.ConfigPart):
  """Options of a training run's length, checkpoints and records."""

  max_steps: int = options.option(
    370000, 'Steps to train.', on_resume=options.LOGGED, least=1
  )
  num_epochs: int = options.option(
    0,
    'Epochs to train, instead of --max_steps; 0: train --max_steps.',
    on_resume=options.IGNORED,
    least=0,
  )
  epoch_size: int = options.option(
    0,
    'Examples per epoch, for --num_epochs, learning rates and --eval_subsets; '
    '0: all of --subset.',
    on_resume=options.LOGGED,
    least=0,
  )
  eval_subsets: tuple[str, ...] = options.option(
    (),
    'Subsets to score after each epoch, separated by commas, such as test or '
    'train,validation; with the current parameters, not their moving averages.',
    on_resume=options.IGNORED,
  )
  train_dir: str = options.option(
    '',
    'Folder for checkpoints and records; a run that it holds continues.',
    shared=options.LOCAL,
  )
  overwrite: bool = options.option(
    False,
    'Delete the run in --train_dir and start a new one.',
    shared=options.LOCAL,
  )
  save_iter: int = options.option(
    5000, 'Steps between checkpoints and histograms.', least=1
  )
  keep_checkpoints: int = options.option(
    5,
    'Number of newest checkpoints to keep, at least 2, since the newest one '
    'may not survive a power cut.',
    shared=options.LOCAL,
    least=2,
  )
  keep_best: str = options.option(
    '',
    'accuracy or loss: also keep the checkpoint of the epoch with the best '
    'accuracy or loss on the first of --eval_subsets, in the folder best of '
    '--train_dir. The score is that of the parameters, not of their averages: '
    'evaluate this checkpoint with --restore_avg_var=false.',
    on_resume=options.IGNORED,
  )
  early_stopping: int = options.option(
    0,
    'End the run after this many epochs without an improvement of the value '
    'that --keep_best names; 0: never.',
    on_resume=options.IGNORED,
    least=0,
  )
  profile_steps: tuple[str, ...] = options.option(
    (),
    'First and last step to profile, as 10,20. The profile is in --train_dir: '
    'open it with TensorBoard and its package tensorboard-plugin-profile.',
    shared=options.LOCAL,
  )
  log_to: tuple[str, ...] = options.option(
    (trackers.TENSORBOARD,),
    'Where to log the metrics, besides metrics.jsonl in --train_dir: '
    f'{", ".join(trackers.NAMES)}, or several of them separated by commas. '
    'wandb and mlflow need the extra of their name and read their settings, '
    'such as WANDB_PROJECT, WANDB_MODE and MLFLOW_TRACKING_URI, from the '
    'environment. Without tensorboard there are no histograms.',
    shared=options.LOCAL,
  )
  benchmark_mode: bool = options.option(
    False,
    'Train on constant images and random labels; no data is read.',
    shared=options.WORKERS,
    on_resume=options.LOGGED,
  )
  log_device_placement: bool = options.option(
    False, 'Log the device of every operation.', shared=options.LOCAL
  )

  @property
  def profiled(self) -> range:
    """The steps to profile, from 1; empty without --profile_steps."""
    first, last = map(int, self.profile_steps or ('1', '0'))
    return range(first, last + 1)

  @property
  def records_epochs(self) -> bool:
    """Whether the run records and logs the end of each epoch."""
    return self.num_epochs > 0 or bool(self.eval_subsets)

  counts_epochs = aliases.renamed_attribute('counts_epochs', 'records_epochs')

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    super().validate()
    options.choice('keep_best', self.keep_best, ('', 'accuracy', 'loss'))
    options.refuse(
      bool(self.keep_best) and not self.eval_subsets,
      'keep_best: expected a subset to score after each epoch, received none. '
      'Name it in --eval_subsets.',
    )
    options.refuse(
      self.early_stopping > 0 and not self.keep_best,
      'early_stopping: expected --keep_best=accuracy or --keep_best=loss '
      'beside it, received none. Say what is better.',
    )
    trackers.check(self.log_to)
    numbers = self.profile_steps
    options.refuse(
      len(numbers) > 0
      and not (
        len(numbers) == 2
        and all(n.isdecimal() for n in numbers)
        and 1 <= int(numbers[0]) <= int(numbers[1])
      ),
      'profile_steps: expected a first and a last step, as 10,20, received '
      f'{",".join(numbers)}. Give two numbers from 1, the smaller one first.',
    )
    options.refuse(
      self.benchmark_mode and len(self.eval_subsets) > 0,
      'eval_subsets: expected none beside --benchmark_mode, received '
      f'{",".join(self.eval_subsets)}: no data is read. Leave one of the two '
      'out.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartOptions(options.ConfigPart):
  """Options of the initial values and of the variables to train."""

  pretrained_model_checkpoint_path: str = options.option(
    '',
    'Checkpoint prefix, or folder of checkpoints, to start from: of this '
    'package or of TensorFlow 1, in either of its formats.',
    shared=options.LOCAL,
  )
  pretrained_weights: str = options.option(
    '',
    'File saved by Keras (.weights.h5, .h5 or .keras) to start from; layers '
    'are matched by name.',
    shared=options.LOCAL,
  )
  fine_tune: bool = options.option(
    False,
    'Start at step 0 and restore all pretrained layers except the logits and '
    'the auxiliary logits.',
  )
  restart_step: bool = options.option(
    False,
    'Restore the logits too, but start at step 0 with fresh optimizer slots; '
    'otherwise the run continues from the step of the checkpoint.',
  )
  checkpoint_exclude_scopes: str = options.option(
    '',
    'Scopes of variables not to restore, separated by commas: layers, or names '
    'of TF-Slim such as InceptionV3/Logits.',
  )
  ignore_missing_vars: bool = options.option(
    False, 'Initialize variables that are missing in the checkpoint.'
  )
  trainable_scopes: str = options.option(
    '',
    'Scopes of parameters to train, separated by commas; all others are '
    'frozen, and no gradients are sent for them. Empty: all.',
    on_resume=options.REFUSED,
  )

  @property
  def path(self) -> str:
    """File or folder with the initial values; '' for a fresh start."""
    return self.pretrained_model_checkpoint_path or self.pretrained_weights

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    super().validate()
    options.refuse(
      ''
      not in (self.pretrained_model_checkpoint_path, self.pretrained_weights),
      'pretrained_weights: expected it without '
      '--pretrained_model_checkpoint_path, received both. Choose one to '
      'start from.',
    )
    for name in _NEED_A_PATH:
      options.refuse(
        not options.is_default(self, name) and not self.path,
        f'{name}: expected --pretrained_model_checkpoint_path or '
        '--pretrained_weights beside it, received none. Name the file to start '
        'from.',
      )
