"""Options of an evaluation."""

import dataclasses
import os

from terngrad.config import model as model_lib
from terngrad.config import options


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalDataOptions(model_lib.DataOptions):
  """Options of the data that an evaluation scores."""

  subset: str = options.option('validation', 'Prefix of the files to read.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalRunOptions(options.ConfigPart):
  """Options of the checkpoints, of the scoring and of the records."""

  max_steps: int = options.option(
    370000,
    'Evaluation ends after the checkpoint of this step, or of the last step of '
    'the run; if it is left out: of the last step of the run.',
    on_resume=options.LOGGED,
    least=1,
  )
  eval_dir: str = options.option('', 'Folder for records of the evaluation.')
  checkpoint_dir: str = options.option(
    '', 'Folder whose newest checkpoint is evaluated.'
  )
  eval_interval_secs: int = options.option(
    3600,
    'Seconds between two checks for a new checkpoint.',
    least=0,
    most=2**31 - 1,
  )
  run_once: bool = options.option(
    False, 'Evaluate the newest checkpoint and end.'
  )
  num_examples: int = options.option(
    50000,
    'Largest number of examples to score; each is scored once.',
    'data',
    least=1,
  )
  device: str = options.option(
    '/gpu:0', 'Device to run on; the CPU if it does not exist.', 'devices'
  )
  tower: int = options.option(
    -1,
    "Read the parameters of this node's device; -1: of the first one stored.",
    'devices',
    least=-1,
  )
  restore_avg_var: bool = options.option(
    True, 'Read the moving averages of the parameters.', 'model'
  )
  # A flag of the 2017 code, accepted without effect: evaluation codes nothing.
  size_to_binarize: int = options.option(
    1, 'Gradients with fewer elements than this stay float32.', 'codes', least=0
  )

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    super().validate()
    folders = self.eval_dir, checkpoint_folder(self.checkpoint_dir)
    options.refuse(
      all(folders) and len({*map(os.path.realpath, folders)}) == 1,
      'eval_dir: expected another folder than --checkpoint_dir, received '
      f'{self.eval_dir} for both; the records would mix. Choose another '
      '--eval_dir.',
    )


def checkpoint_folder(path: str) -> str:
  """Returns the folder of a checkpoint's file or prefix; others unchanged."""
  is_one = os.path.isfile(path) or os.path.exists(f'{path}.index')
  return os.path.dirname(path) if is_one else path


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig:
  """Configuration of an evaluation of a training run's checkpoints.

  Attributes:
    given: names of the options that the command line sets; None: those without
      their defaults.
  """

  data: EvalDataOptions = options.part(EvalDataOptions)
  model: model_lib.ModelOptions = options.part(model_lib.ModelOptions)
  run: EvalRunOptions = options.part(EvalRunOptions)
  given: frozenset[str] | None = None

  def is_given(self, name: str) -> bool:
    """Returns whether an option was given, so that it is not replaced."""
    if self.given is None:
      return not options.is_default(self, name)
    return name in self.given

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    options.validate_parts(self)
    model_lib.check_inputs(self.data, self.model)
