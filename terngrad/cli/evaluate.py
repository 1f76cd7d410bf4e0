"""The command that evaluates checkpoints."""

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import presets
from terngrad.config import training as configs

evaluation = lazy.module('terngrad.training.evaluation')

_USAGE = """\
{{program}}: scores the checkpoints of a net for {title}{scored}.

  {{program}} --data_dir=D --checkpoint_dir=T --eval_dir=E --run_once

Without --run_once it scores every new checkpoint up to the last step.
"""


def scorer(preset: presets.Preset) -> command.Command:
  """Declares the evaluation command of a data set."""
  return command.Command(
    _USAGE.format(title=preset.title, scored=preset.scored),
    configs.EvalConfig,
    evaluate,
    preset.model | preset.evaluation,
    given='given',
    packages=('PIL',),
  )


def evaluate(config: configs.EvalConfig) -> None:
  """Evaluates checkpoints as the configuration specifies."""
  evaluation.evaluate(config, command.say)
