"""The command that scores checkpoints."""

from terngrad import lazy
from terngrad.cli import command
from terngrad.config import training as configs

evaluation = lazy.module('terngrad.training.evaluation')

_USAGE = """\
{{program}}: scores the checkpoints of a net for {title}{scored}.

  {{program}} --data_dir=D --checkpoint_dir=T --eval_dir=E --run_once

Without --run_once it scores every new checkpoint until the last step's.
"""


def of(preset):
  """The evaluator of a `presets.Preset`."""
  return command.Command(
    _USAGE.format(title=preset.title, scored=preset.scored),
    configs.EvalConfig,
    evaluate,
    preset.model | preset.evaluation,
  )


def evaluate(config):
  """Scores as an `evaluation.EvalConfig` says."""
  evaluation.evaluate(config, command.say)
