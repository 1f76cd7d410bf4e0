"""Options of an evaluation."""

import dataclasses
import os

from terngrad import errors
from terngrad.config import model as model_lib
from terngrad.config import options

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalData(model_lib.Data):
  """What is scored."""

  subset: str = option('validation', 'Prefix of the files to read.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalRun:
  """What is looked for, how it is scored, and what is left."""

  max_steps: int = option(370000, 'Steps to train.', on_resume=options.TOLD)
  eval_dir: str = option('', 'Folder for records.')
  checkpoint_dir: str = option(
    '', 'Folder whose newest checkpoint is evaluated.'
  )
  eval_interval_secs: int = option(
    3600, 'Seconds between two looks for a new checkpoint.'
  )
  run_once: bool = option(False, 'Evaluate the newest checkpoint and end.')
  num_examples: int = option(
    50000, "Examples to score at most; every one of the subset's once.", 'data'
  )
  device: str = option(
    '/gpu:0', 'Device to run on; the CPU where it does not exist.', 'devices'
  )
  tower: int = option(
    -1, "Read this node's parameters; -1: those that are there.", 'devices'
  )
  restore_avg_var: bool = option(
    True, 'Read the moving averages of the parameters.', 'model'
  )
  # Accepted, as of 2017: nothing is coded.
  size_to_binarize: int = option(
    1, 'Gradients with fewer elements than this stay float32.', 'codes'
  )

  def validate(self):
    """Raises `errors.ConfigError` for the first option out of its range."""
    options.at_least('max_steps', self.max_steps, 1)
    options.at_least('size_to_binarize', self.size_to_binarize, 0)
    options.at_least('eval_interval_secs', self.eval_interval_secs, 0)
    options.at_least('num_examples', self.num_examples, 1)
    options.at_least('tower', self.tower, -1)
    folders = self.eval_dir, self.checkpoint_dir
    if all(folders) and len({*map(os.path.realpath, folders)}) == 1:
      raise errors.ConfigError(
        'eval_dir: expected another folder than --checkpoint_dir, received '
        f'{self.eval_dir} for both; the records would mix. Choose another '
        '--eval_dir.'
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig:
  """An evaluation of the checkpoints that a training run writes."""

  data: EvalData = options.part(EvalData)
  model: model_lib.Model = options.part(model_lib.Model)
  run: EvalRun = options.part(EvalRun)

  def validate(self):
    """Raises `errors.ConfigError` for the first option that cannot be."""
    options.validate_parts(self)
