"""Options of what a run starts from, and of what of it is trained."""

import dataclasses
import os

from terngrad.training import config_base as base
from terngrad.training import config_methods as methods
from terngrad.training import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainedConfig(methods.MethodConfig):
  """Values of another run, and scopes of variables.

  The `train_dir` and `overwrite` that these are checked against are of the
  configuration that inherits these options.
  """

  pretrained_model_checkpoint_path: str = base.option(
    '',
    'Checkpoint prefix, or folder of checkpoints, to start from.',
    'run',
  )
  fine_tune: bool = base.option(
    False,
    'Leave the logits of the pretrained checkpoint out and start at step 0.',
    'run',
  )

  def _check_pretrained(self):
    path = self.pretrained_model_checkpoint_path
    if self.fine_tune and not path:
      raise errors.ConfigError(
        'fine_tune: expected --pretrained_model_checkpoint_path beside it, '
        'received none. Name the checkpoint to start from.'
      )
    folder = os.path.realpath(self.train_dir)
    inside = os.path.realpath(path).startswith(folder + os.sep)
    if self.overwrite and path and (inside or os.path.realpath(path) == folder):
      raise errors.ConfigError(
        'overwrite: expected --pretrained_model_checkpoint_path outside of '
        f'--train_dir, received {path}, which would be deleted. Choose another '
        '--train_dir.'
      )

  def validate(self):
    """Raises `errors.ConfigError` for the first field out of its range."""
    super().validate()
    self._check_pretrained()
