"""The training loop: steps, and when to log, to save and to stop."""

import contextlib
import time
from collections.abc import Callable
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tqdm

from terngrad import errors
from terngrad import signals
from terngrad.cluster import coordination
from terngrad.step import loss_scaling
from terngrad.step import schedules
from terngrad.step import step as steps
from terngrad.training import batches
from terngrad.training import execution
from terngrad.training import run_writer


class Outcome(NamedTuple):
  """How a run ended.

  Attributes:
    step: steps taken, all runs of the folder together.
    stopped_by: the signal's number, or None where max_steps were reached.
  """

  step: int
  stopped_by: int | None


def run_steps(config, run, begin, report, show_progress=False):
  """Trains until max_steps or a signal.

  Args:
    config: `training.TrainConfig`, its numbers those of all workers together.
    run: `run.Run`.
    begin: pair (steps taken before, step of the checkpoint that stands in
      train_dir or -1).
    report: called with each line for the person who watches.
    show_progress: True draws a progress bar on the terminal.

  Returns:
    An `Outcome`.

  Raises:
    errors.TrainingError: it had to stop; the last checkpoint is good.
  """
  writer = (
    run_writer.RunWriter(config.run.train_dir, run, begin, report)
    if config.cluster.keeps_files
    else None
  )
  with contextlib.ExitStack() as stack:
    if writer:
      stack.enter_context(_closing(writer, run.hooks))
    stop = stack.enter_context(
      signals.stopping(alone=run.exchange.group is None)
    )
    bar = tqdm.tqdm(
      total=run.max_steps,
      initial=begin[0],
      unit='step',
      disable=not show_progress,
    )
    screen = _Screen(stack.enter_context(bar), report, show_progress)
    try:
      step = _take_steps(config, run, begin, stop, writer, screen)
      with run.hooks.time_limit('End'):
        coordination.barrier(run.exchange, step)
    except tf.errors.OpError as error:
      raise errors.TrainingError(
        f'A step: expected to compute, received: {error.message} Where memory '
        'is short, use a smaller --batch_size or more --num_nodes; the last '
        'checkpoint is good.'
      ) from error
    except OSError as error:
      raise errors.TrainingError(
        f'{config.run.train_dir}: expected to be written, received: '
        f'{error.strerror}. Make room; the same command continues from the '
        'last checkpoint.'
      ) from error
  return Outcome(step, stop.agreed if step < run.max_steps else None)


@contextlib.contextmanager
def _closing(
  writer: run_writer.RunWriter, hooks: execution.Hooks
) -> Iterator[None]:
  """Closes the records at the end, whether a step failed or not.

  TensorFlow registers what closes the file of events with every task first.
  Where one of them does not answer, it waits without an end.
  """
  try:
    yield
  finally:
    with hooks.own_limit('End of the records'):
      writer.close()


class _Screen:
  """What the person who watches sees, with a progress bar if asked for."""

  def __init__(
    self, bar: tqdm.tqdm, report: Callable[[str], None], shows: bool
  ) -> None:
    """Takes the bar, where lines go without one, and whether it is shown."""
    self._bar = bar
    self._shows = shows
    self._report = bar.write if shows else report

  def say(self, line: str) -> None:
    """Shows a line."""
    self._report(line)

  def tick(self, result: steps.StepResult) -> None:
    """Shows that a step was taken."""
    if self._shows:
      pair = result.entropy, result.accuracy
      loss, accuracy = (float(value.numpy().mean()) for value in pair)
      self._bar.set_postfix(loss=loss, accuracy=accuracy, refresh=False)
    self._bar.update()


def _take_steps(config, run, begin, stop, writer, screen):
  """Runs the steps that are left; returns the steps taken.

  `begin` is the pair (steps taken before, step of the checkpoint that stands in
  train_dir or -1); `writer` is None in processes that keep no files.
  """
  step, stop.saved = begin
  max_steps = run.max_steps
  saving = run_writer.IntervalTimer(run.hooks.save_secs)
  stream = run.batches(step) if step < max_steps else None
  while step < max_steps and not stop.agreed:
    result, rate = _one_step(config, run, step, stream, stop)
    step += 1
    stop.agree(result, step)
    screen.tick(result)
    epoch = run.epochs.ended(step) if config.run.counts_epochs else None
    at_checkpoint = step % config.run.save_iter == 0 or saving.due()
    if writer:
      with run.hooks.own_limit(f'Records of step {step}'):
        writer.add(result)
        logs = step % run.hooks.log_every == 0 or step == max_steps
        if logs or at_checkpoint or epoch:
          screen.say(writer.log(step, rate))
        writer.observe(step, result, at_checkpoint)
    if epoch:
      _end_epoch(run, writer, screen, step, epoch)
    if at_checkpoint:
      _save(run, writer, step)
      stop.saved = step
  if stop.saved != step:
    path = _save(run, writer, step)
    screen.say(f'{datetime.now()}: saved {path}')
  return step


def _end_epoch(run, writer, screen, step, epoch):
  """Scores the parameters, if that is asked for, and records the epoch."""
  before = time.perf_counter()
  scores = run.score()
  if writer:
    seconds = time.perf_counter() - before
    screen.say(writer.end_epoch(step, epoch, scores, seconds))


def _save(run, writer, step):
  """Proves that all replicas are equal; writes a checkpoint, its path."""
  with run.hooks.time_limit(f'Step {step}'):
    run.hooks.before_save()
    coordination.assert_equal(run.exchange, run.replicas[0], run.names)
    states = run.store.gather()
  return writer.save(step, states) if writer else None


def _one_step(config, run, step, stream, stop):
  """Takes one step and looks at its losses; (StepResult, learning rate)."""
  cycle, batch_size = config.codes.floating_grad_epoch, config.data.batch_size
  floats = schedules.uses_float_gradients(
    cycle, step, batch_size, run.epochs.num_examples
  )
  train_step, codec = run.chosen(step, floats)
  rate = run.learning_rate(step)
  decay = schedules.averaging_decay(step, config.optimizer.moving_average_decay)
  with (
    batches.explaining(config.data.data_dir, config.data.subset),
    run.hooks.own_limit(f'Data of step {step + 1}'),
  ):
    images, labels = next(stream)
  with run.hooks.time_limit(f'Step {step + 1}'):
    result = train_step.take(
      images,
      labels,
      tf.constant(step, tf.int64),
      tf.constant(rate, tf.float32),
      tf.constant(decay, tf.float32),
      tf.constant(float(stop.signal or 0)),
    )
    # The step may still be under way until a number of it is looked at.
    result.entropy.numpy()
  if not loss_scaling.can_fall(run.replicas[0].scaling):
    _check_finite(run, step, result, codec)
  return result, rate


def _check_finite(run, step, result, codec):
  """Raises where a loss or a gradient is not finite, and says where.

  Gradients that are may add up to infinity: the mean is their sum, divided.
  """
  entropy = result.entropy.numpy()
  probes = result.probes.numpy()
  with np.errstate(over='ignore'):
    usable = np.isfinite(probes * np.float32(len(entropy)))
  if np.isfinite(entropy).all() and usable.all():
    return
  variables = codec.probed_variables()
  worker_labels = result.worker_labels or [
    f'worker {i}' for i in range(len(entropy))
  ]
  where = [
    f'loss of {worker_labels[i]}' for i in np.flatnonzero(~np.isfinite(entropy))
  ]
  where += [
    f'{"sum" if np.isfinite(probes[worker, probe]) else "gradient"} of '
    f'{run.parameters[variables[probe]]} on {worker_labels[worker]}'
    for worker, probe in np.argwhere(~usable)
  ]
  raise errors.TrainingError(
    f'Step {step + 1}: expected finite numbers, received NaN or infinity in '
    f'the {", ".join(where[:4])}{" and more" if len(where) > 4 else ""}. '
    'Lower --initial_learning_rate or clip with --clip_factor; the last '
    'checkpoint is from before this step and the same command continues from '
    'it.'
  )
