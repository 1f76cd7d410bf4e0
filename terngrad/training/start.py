"""Starts a run: locks its folder, assembles it and restores a checkpoint."""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from collections.abc import Iterator
from datetime import datetime

import numpy as np
import tensorflow as tf

from terngrad import errors
from terngrad.checkpoint import folder
from terngrad.checkpoint import pretrained
from terngrad.checkpoint import resume
from terngrad.cluster import coordination
from terngrad.cluster import devices
from terngrad.cluster import spec as clusters
from terngrad.cluster import watchdog
from terngrad.config import cluster as cluster_options
from terngrad.config import options
from terngrad.config import training as training_options
from terngrad.machine import determinism
from terngrad.machine import xla_cache
from terngrad.recipes import catalog
from terngrad.recipes import recipe as recipes
from terngrad.tracking import trackers
from terngrad.training import assembly
from terngrad.training import execution
from terngrad.training import loop
from terngrad.training import run as run_lib
from terngrad.training import run_writer


def train(
  config: training_options.TrainConfig,
  report: Callable[[str], None],
  show_progress: bool = False,
  hooks: Callable[[run_lib.Run], execution.Hooks] | None = None,
) -> loop.Outcome:
  """Trains until max_steps or a signal; resumes the run in train_dir, if any.

  Args:
    config: the configuration of the run.
    report: called with each log line.
    show_progress: True draws a progress bar on the terminal.
    hooks: returns the hooks of the assembled run; None for the default hooks.

  Raises:
    errors.ConfigError, slim.errors.DataError: the run cannot start; no file was
      written.
    errors.TrainingError: the run had to stop; the last checkpoint is valid.
  """
  cluster = config.cluster
  with share_failures(cluster):
    config.validate()
    devices.limit_threads(config.devices.threads)
    if cluster.writes_files:
      options.folder('train_dir', config.run.train_dir)
      trackers.check_installed(config.run.log_to)
    if cluster.tasks:
      report(
        clusters.check_network(cluster.tasks, cluster.allow_insecure_network)
      )
  # Only the first of several processes writes files and logs.
  if not cluster.writes_files:
    report, show_progress = (lambda line: None), False

  def assemble(config: training_options.TrainConfig) -> run_lib.Run:
    run = assembly.assemble(config)
    return dataclasses.replace(run, hooks=hooks(run)) if hooks else run

  return run_assembled(
    config, assemble, report, show_progress, _starting(cluster)
  )


@contextlib.contextmanager
def _starting(cluster: cluster_options.ClusterOptions) -> Iterator[None]:
  """Context of everything between the rendezvous and the first step."""
  limit = watchdog.limit_start
  seconds, tasks = cluster.start_timeout, cluster.tasks
  with (
    share_failures(cluster),
    coordination.time_limit(tasks, seconds, 'Start', limit),
  ):
    yield


def share_failures(
  cluster: cluster_options.ClusterOptions,
) -> contextlib.AbstractContextManager[None]:
  """Ends all processes that meet in a rendezvous if one fails in a block."""
  with contextlib.suppress(errors.ConfigError):
    if cluster.meeting:
      return cluster.meeting.share_failures(watchdog.end_start)
  # The error of the options is raised where they are validated.
  return contextlib.nullcontext()


def run_assembled(
  config: training_options.TrainConfig,
  assemble: Callable[[training_options.TrainConfig], run_lib.Run],
  report: Callable[[str], None],
  show_progress: bool,
  start: contextlib.AbstractContextManager[None],
) -> loop.Outcome:
  """Trains as `train` does, with a validated configuration.

  Args:
    config: batch size and nodes count all processes.
    assemble: builds the run.
    report: called with each log line.
    show_progress: True draws a progress bar on the terminal.
    start: context of everything before the first step, such as a time limit.

  Raises:
    errors.ConfigError, slim.errors.DataError, errors.TrainingError: see
      `train`.
  """
  if config.run.log_device_placement:
    tf.debugging.set_log_device_placement(True)
  writes, train_dir = config.cluster.writes_files, config.run.train_dir
  with contextlib.ExitStack() as stack:
    stack.enter_context(determinism.require(config.devices.deterministic))
    exists = writes and os.path.isdir(train_dir)
    with start:
      if exists:
        stack.enter_context(folder.lock(train_dir))
      with execution.memory_errors_as_config_errors():
        run = assemble(config)
      begin, stored = _begin(config, run, report) if writes else ((0, -1), {})
      taken, saved = coordination.broadcast_start(
        run.exchange, run.replicas, begin
      )
      begin = taken, saved
      run.store.scatter(stored)
    if writes:
      folder.make(train_dir)
      if not exists:
        stack.enter_context(folder.lock(train_dir))
      for line in _remarks(config, run):
        report(f'{datetime.now()}: {line}')
      folder.clear(train_dir, config.run.overwrite)
    return loop.run_steps(config, run, begin, report, show_progress)


def _remarks(
  config: training_options.TrainConfig, run: run_lib.Run
) -> list[str]:
  """Log lines before the first step."""
  always_float = config.codes.floating_grad_epoch == 1
  codec = run.float_codec if always_float else run.codec
  lines = execution.remarks(codec, run.exchange, always_float)
  lines += [determinism.describe(), run.compiling, xla_cache.describe()]
  if config.optimizer.recipe:
    found, given = (
      catalog.find(config.optimizer.recipe),
      options.by_name(config),
    )
    values = {name: given[flag] for name, flag in recipes.FLAGS.items()}
    lines.append(found.describe(values))
  if run.shares:
    lines.append(f'examples per worker: {", ".join(map(str, run.shares))}')
  return lines


def _begin(
  config: training_options.TrainConfig,
  run: run_lib.Run,
  report: Callable[[str], None],
) -> tuple[run_writer.Begin, dict[str, np.ndarray]]:
  """Restores a checkpoint; returns the start and the methods' states."""
  restored = resume.NOT_RESUMED
  if not config.run.overwrite:
    restored = resume.continue_run(config.run.train_dir, run, report)
  first = restored.step or pretrained.start(config.start, run, report)
  return (first, restored.step or -1), restored.states
