"""Options of an evaluation."""

import dataclasses
import os

from terngrad import errors
from terngrad.config import model
from terngrad.config import options


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig(model.ModelConfig):
  """An evaluation of the checkpoints that a training run writes."""

  subset: str = options.option(
    'validation', 'Prefix of the files to read.', 'data'
  )
  eval_dir: str = options.option('', 'Folder for records.', 'run')
  checkpoint_dir: str = options.option(
    '',
    'Folder whose newest checkpoint is evaluated.',
    'run',
  )
  eval_interval_secs: int = options.option(
    3600, 'Seconds between two looks for a new checkpoint.', 'run'
  )
  run_once: bool = options.option(
    False, 'Evaluate the newest checkpoint and end.', 'run'
  )
  num_examples: int = options.option(
    50000, "Examples to score at most; every one of the subset's once.", 'data'
  )
  device: str = options.option(
    '/gpu:0', 'Device to run on; the CPU where it does not exist.', 'devices'
  )
  tower: int = options.option(
    -1, "Read this node's parameters; -1: those that are there.", 'devices'
  )
  restore_avg_var: bool = options.option(
    True, 'Read the moving averages of the parameters.', 'model'
  )

  def validate(self):
    """Raises `errors.ConfigError` for the first field out of its range."""
    super().validate()
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
