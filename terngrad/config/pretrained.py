"""Options of what a run starts from, and of what of it is trained."""

import dataclasses
import os

from terngrad import errors
from terngrad.config import loss
from terngrad.config import options


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainedConfig(loss.MethodConfig):
  """Values of another run, and scopes of variables.

  The `train_dir` and `overwrite` that these are checked against are of the
  configuration that inherits these options.
  """

  pretrained_model_checkpoint_path: str = options.option(
    '',
    'Checkpoint prefix, or folder of checkpoints, to start from: of this '
    "package, or TensorFlow 1's, of either format.",
    'start',
    shared=options.OWN,
  )
  pretrained_weights: str = options.option(
    '',
    'File that Keras saved, .weights.h5, .h5 or .keras, to start from; layers '
    'are found by name.',
    'start',
    shared=options.OWN,
  )
  fine_tune: bool = options.option(
    False,
    'Leave the logits of what is pretrained out, auxiliary ones too, and start '
    'at step 0.',
    'start',
  )
  restart_step: bool = options.option(
    False,
    'Start at step 0, with fresh slots of the optimizer, though the logits are '
    'restored; otherwise the run goes on from the step of the checkpoint.',
    'start',
  )
  checkpoint_exclude_scopes: str = options.option(
    '',
    'Scopes of variables not to restore, separated by commas: layers, or '
    "TF-Slim's names as InceptionV3/Logits.",
    'start',
  )
  ignore_missing_vars: bool = options.option(
    False, 'Variables that are not in the checkpoint begin anew.', 'start'
  )
  trainable_scopes: str = options.option(
    '',
    'Scopes of parameters to train, separated by commas; the others stay what '
    'they are, and are not sent. Empty: all.',
    'start',
    on_resume=options.KEPT,
  )

  def _check_pretrained(self):
    path = self.pretrained_model_checkpoint_path or self.pretrained_weights
    if self.pretrained_model_checkpoint_path and self.pretrained_weights:
      raise errors.ConfigError(
        'pretrained_weights: expected it without '
        '--pretrained_model_checkpoint_path, received both. Choose one to '
        'start from.'
      )
    if self.fine_tune and not path:
      raise errors.ConfigError(
        'fine_tune: expected --pretrained_model_checkpoint_path or '
        '--pretrained_weights beside it, received none. Name the file to start '
        'from.'
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
