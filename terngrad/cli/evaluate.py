"""The command that scores checkpoints."""

from terngrad import lazy
from terngrad.cli import command
from terngrad.config import training as configs

evaluation = lazy.module('terngrad.training.evaluation')

_USAGE = """\
{{program}}: scores the checkpoints of {trainer}{scored}.

  {{program}} --data_dir=D --checkpoint_dir=T --eval_dir=E --run_once

Without --run_once it scores every new checkpoint until the last step's.
"""


def of(preset):
  """The evaluator of a `presets.Preset`."""
  trainer = f'a net for {preset.title}'
  return command.Command(
    _USAGE.format(trainer=trainer, scored=preset.scored),
    configs.EvalConfig,
    evaluate,
    preset.model | preset.evaluation,
  )


def evaluate(config):
  """Scores as a `evaluation.EvalConfig` says."""
  evaluation.evaluate(config, command.say)
