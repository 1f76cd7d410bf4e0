"""The shared main of the programs: command line in, exit code out.

Exit codes: 0 done; 1 training had to stop; 2 it could not begin, nothing was
written; 75 another process was lost, all can continue; 128 + n stopped by
signal n, after a checkpoint.
"""

import datetime
import os
import sys

from absl import logging

from slim import errors as data_errors
from terngrad import errors
from terngrad.config import config as configs
from terngrad.config import server_config
from terngrad.parameter_server import server_run
from terngrad.parameter_server import server_tasks
from terngrad.program import flags
from terngrad.training import evaluation
from terngrad.training import loop
from terngrad.training import signals

DONE, FAILED, REFUSED, SIGNALLED = 0, 1, 2, 128


def run_training(usage, defaults):
  """Trains as the command line says; returns the exit code."""
  return run(configs.TrainConfig, usage, defaults, train)


def run_distributed_training(usage, defaults):
  """Is one task of a run with parameter servers; does not return."""
  run_to_the_end(server_config.ServerConfig, usage, defaults, serve_or_train)


def run_to_the_end(config_class, usage, defaults, act):
  """Is `run`, and the end of the process.

  Python's own end is left out, because TensorFlow's servers and calls that wait
  for other tasks cannot be stopped.
  """
  code = run(config_class, usage, defaults, act)
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)


def run_evaluation(usage, defaults):
  """Evaluates as the command line says; returns the exit code."""
  return run(configs.EvalConfig, usage, defaults, evaluate)


def train(config):
  """Trains as a `config.TrainConfig` says; returns the exit code."""
  outcome = loop.train(config, say, show_progress=sys.stderr.isatty())
  return _report_end(config, outcome)


def serve_or_train(config):
  """Is a task of a `server_config.ServerConfig`; returns the exit code.

  A chief that lost another task does not return: it begins anew.
  """
  config.validate()
  for line in server_config.banner(config):
    say(line)
  if not config.tasks.is_chief:
    with signals.stopping() as stop:
      stopped_by = server_tasks.serve(config, say, lambda: stop.signal)
    return SIGNALLED + stopped_by if stopped_by else DONE
  try:
    outcome = server_run.train(config, say, show_progress=sys.stderr.isatty())
  except server_run.TaskLostError as error:
    say(f'{datetime.datetime.now()}: {error}; beginning anew')
    # The run itself must stay, whatever the command says.
    arguments = [*sys.orig_argv[1:], '--overwrite=false']
    os.execv(sys.executable, [sys.executable, *arguments])
  return _report_end(config, outcome)


def _report_end(config, outcome):
  """Says how training ended; returns the exit code."""
  if outcome.stopped_by is not None:
    say(
      f'{datetime.datetime.now()}: stopped by signal {outcome.stopped_by} '
      f'after step {outcome.step}; the same command continues'
      f'{" if --overwrite is left out" if config.overwrite else ""}'
    )
    return SIGNALLED + outcome.stopped_by
  return DONE


def evaluate(config):
  """Evaluates as a `config.EvalConfig` says; returns the exit code."""
  evaluation.evaluate(config, say)
  return DONE


def say(line):
  """Prints a line at once, so that a log can be followed."""
  sys.stdout.write(f'{line}\n')
  sys.stdout.flush()


def run(config_class, usage, defaults, act):
  """Reads the command line and acts on it, with one line for an error.

  Args:
    config_class: dataclass of `config.option`s.
    usage: the first lines of --help.
    defaults: dict of field name to this program's own default.
    act: takes such a configuration, returns the exit code. Raises
      `flags.UsageError` for flags that contradict each other.

  Returns:
    The exit code.
  """
  arguments = sys.argv[1:]
  if any(word in ('--help', '-help', '-h', '--helpfull') for word in arguments):
    say(flags.help_text(config_class, defaults, usage))
    return DONE
  logging.use_absl_handler()
  try:
    return act(flags.parse(config_class, defaults, arguments))
  except (flags.UsageError, errors.ConfigError, data_errors.DataError) as error:
    return _complain(error, REFUSED)
  except errors.TrainingError as error:
    return _complain(error, FAILED)
  except KeyboardInterrupt:
    return SIGNALLED + 2


def _complain(error, code):
  sys.stderr.write(f'error: {error}\n')
  return code
