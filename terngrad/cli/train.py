"""Training commands: on one machine, with collectives, or with servers."""

import datetime
import os
import signal
import sys
from typing import TYPE_CHECKING
from typing import Any

from terngrad import lazy
from terngrad import signals
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli import presets
from terngrad.config import options
from terngrad.config import servers
from terngrad.config import training as configs
from terngrad.launching import output

if TYPE_CHECKING:
  from terngrad.training import loop as loop_types

start = lazy.module('terngrad.training.start')
server_run = lazy.module('terngrad.parameter_server.server_run')
server_tasks = lazy.module('terngrad.parameter_server.server_tasks')

# Of every training run.
PACKAGES = ('PIL', 'tqdm')
_USAGE = """\
{{program}}: trains a net on {title}.

  {{program}} --data_dir=D --train_dir=T \\
      {example}

Every node computes gradients on its part of the batch; with --grad_bits=1 they
are sent as codes of -1, 0 and +1. The same command continues a run that was
stopped. {notes}
"""

_SERVERS_USAGE = """\
{{program}}: trains a net on {title} with parameter servers.

  {{program}} --job_name=ps --task_id=0 \\
      --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224
  {{program}} --job_name=worker --task_id=0 --ps_hosts=... \\
      --worker_hosts=... --data_dir=D --train_dir=T --grad_bits=1 \\
      --clip_factor=2.5

Start one process for every host of the two lists. Workers push codes of -1, 0
and +1 and pull their sums; worker 0 writes the checkpoints. --batch_size is for
one worker. The same commands continue a run that was stopped.
"""


def trainer(preset: presets.Preset) -> command.Command:
  """Declares the training command of a data set, without servers."""
  usage = _USAGE.format(
    title=preset.title, example=preset.example, notes=preset.notes
  )
  defaults = preset.model | preset.training
  return command.Command(
    usage, configs.TrainConfig, train, defaults, packages=PACKAGES
  )


def server_trainer(preset: presets.Preset) -> command.Command:
  """Declares the command of one task of training with parameter servers."""
  more = preset.training if preset.servers is None else preset.servers
  return command.Command(
    _SERVERS_USAGE.format(title=preset.title),
    servers.ServerConfig,
    serve_or_train,
    preset.model | more,
    packages=PACKAGES,
    ends_process=True,
  )


class TrainingLog:
  """Prints lines. If that fails, the run is stopped as by SIGTERM.

  It then writes a checkpoint, so the steps are not lost.
  """

  def __init__(self) -> None:
    """Begins a log."""
    self._is_lost = False

  def __call__(self, line: str) -> None:
    """Prints a line; the first one that fails stops the run."""
    if self._is_lost or output.try_say(line):
      return
    self._is_lost = True
    command.report_error(
      'error',
      'the output: expected a reader or a file with space for the log, '
      'received none, so training stops after a checkpoint. Write the log to '
      'another file; the same command continues.',
      0,
    )
    os.kill(os.getpid(), signal.SIGTERM)


def train(config: configs.TrainConfig) -> int:
  """Trains as the configuration specifies; returns the exit code."""
  outcome = start.train(config, TrainingLog(), sys.stderr.isatty())
  return report_end(config, outcome)


def serve_or_train(config: servers.ServerConfig) -> int:
  """Runs this process's task; returns the exit code.

  A chief that lost another task does not return: it restarts its process.
  """
  config.validate()
  for line in servers.banner(config.cluster):
    command.say(line)
  if not config.cluster.tasks.is_chief:
    with signals.stop_at_signal() as stop:
      stop.doing = 'the run'
      # Without a log it serves on: the chief would lose it and its steps.
      stopped_by = server_tasks.serve(
        config, output.try_say, lambda: stop.signal
      )
    return command.SIGNALLED + stopped_by if stopped_by else command.DONE
  try:
    outcome = server_run.train(config, TrainingLog(), sys.stderr.isatty())
  except server_run.TaskLostError as error:
    if stopped_by := signals.taken():
      command.report_error('error', error, 0)
      return command.SIGNALLED + stopped_by
    command.say(f'{datetime.datetime.now()}: {error}; restarting')
    # A restarted run must not delete its checkpoints, even with --overwrite.
    arguments = [*sys.orig_argv[1:], '--overwrite=false']
    os.execv(sys.executable, [sys.executable, *arguments])
  return report_end(config, outcome)


def check_length(values: Any) -> None:
  """Refuses --max_steps beside epochs, which would replace it silently.

  Args:
    values: dataclass of the flags of a trainer that counts epochs by default.

  Raises:
    flags.UsageError: --max_steps and --num_epochs are set.
  """
  if values.num_epochs and not options.is_default(values, 'max_steps'):
    raise flags.UsageError(
      f'--max_steps: expected --num_epochs=0 beside it, received '
      f'{values.max_steps} and --num_epochs={values.num_epochs}. Add '
      '--num_epochs=0, or leave --max_steps out.'
    )


def report_end(
  config: configs.TrainConfig, outcome: 'loop_types.Outcome'
) -> int:
  """Logs a stop by a signal; returns the exit code."""
  if outcome.stopped_by is None:
    return command.DONE
  output.try_say(
    f'{datetime.datetime.now()}: stopped by signal {outcome.stopped_by} '
    f'after step {outcome.step}; the same command continues'
    f'{" if --overwrite is left out" if config.run.overwrite else ""}'
  )
  return command.SIGNALLED + outcome.stopped_by
