"""The training loop: steps, records, checkpoints, signals."""

import contextlib
import os
import time
from datetime import datetime
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tqdm

from slim.datasets import records as data_records
from terngrad.training import assembly
from terngrad.training import checkpoints
from terngrad.training import errors
from terngrad.training import folder
from terngrad.training import meter
from terngrad.training import records
from terngrad.training import resume
from terngrad.training import schedules
from terngrad.training import signals


class Outcome(NamedTuple):
  """How a run ended.

  Attributes:
    step: steps taken, all runs of the folder together.
    stopped_by: the signal's number, or None where max_steps were reached.
  """

  step: int
  stopped_by: int | None


def train(config, report, show_progress=False):
  """Trains until max_steps or a signal; continues what stands in train_dir.

  Args:
    config: `config.TrainConfig`.
    report: called with each line for the person who watches.
    show_progress: True draws a progress bar on the terminal.

  Returns:
    An `Outcome`.

  Raises:
    errors.ConfigError, slim.errors.DataError: it cannot begin; nothing was
      written.
    errors.TrainingError: it had to stop; the last checkpoint is good.
  """
  config.validate()
  return run_assembled(config, assembly.assemble, report, show_progress)


def run_assembled(config, assemble, report, show_progress=False):
  """`train` for a configuration that is valid.

  Args:
    config: `config.TrainConfig`, its numbers those of all workers together.
    assemble: takes it, returns an `assembly.Run`.
    report: see `train`.
    show_progress: see `train`.

  Returns:
    An `Outcome`.

  Raises:
    errors.ConfigError, slim.errors.DataError, errors.TrainingError: see
      `train`.
  """
  if config.log_device_placement:
    tf.debugging.set_log_device_placement(True)
  with contextlib.ExitStack() as alone:
    there = os.path.isdir(config.train_dir)
    if there:
      alone.enter_context(folder.alone_in(config.train_dir))
    run = assemble(config)
    first = 0 if config.overwrite else resume.continue_run(config, run, report)
    saved = first or None
    if first == 0:
      first = resume.start_from_pretrained(config, run, report)
    folder.make(config.train_dir, config.overwrite)
    if not there:
      alone.enter_context(folder.alone_in(config.train_dir))
    return _continue(config, run, (first, saved), report, show_progress)


def _continue(config, run, begin, report, show_progress):
  """Trains on from `begin`; see `_run_steps`."""
  writer = checkpoints.Writer(
    config.train_dir, run.layout, run.replicas, run.names
  )
  recorder = records.Recorder(config.train_dir, step=begin[0])
  with contextlib.closing(recorder), signals.stopping() as stop:
    try:
      step = _run_steps(
        config, run, begin, stop, writer, recorder, report, show_progress
      )
    except tf.errors.OpError as error:
      raise errors.TrainingError(
        f'A step: expected to compute, received: {error.message} Where memory '
        'is short, use a smaller --batch_size or more --num_nodes; the last '
        'checkpoint is good.'
      ) from error
    except OSError as error:
      raise errors.TrainingError(
        f'{config.train_dir}: expected to be written, received: '
        f'{error.strerror}. Make room; the same command continues from the '
        'last checkpoint.'
      ) from error
  return Outcome(step, stop.signal if step < config.max_steps else None)


def _run_steps(
  config, run, begin, stop, writer, recorder, report, show_progress
):
  """Runs the steps that are left; returns the steps taken.

  `begin` is the pair (steps taken before, step of the checkpoint that stands in
  train_dir or None).
  """
  first, saved = begin
  gauge = meter.Meter(config.batch_size, recorder.last)
  bar = tqdm.tqdm(
    total=config.max_steps,
    initial=first,
    unit='step',
    disable=not show_progress,
  )
  say = bar.write if show_progress else report
  step, habits = first, run.habits
  saving, observing = _Every(habits.save_secs), _Every(habits.observe_secs)
  with bar:
    batches = run.batches(first) if first < config.max_steps else None
    while step < config.max_steps and not stop.signal:
      result, rate = _one_step(config, run, step, *_next(config, batches))
      step += 1
      gauge.add(result)
      bar.update()
      habits.on_step()
      at_checkpoint = step % config.save_iter == 0 or saving.due()
      if (
        step % habits.log_every == 0
        or step == config.max_steps
        or at_checkpoint
      ):
        values = gauge.values(
          run.codec.num_elements, rate, float(run.regularization())
        )
        recorder.scalars(step, values, meter.TAGS)
        say(habits.line(step, values))
      if at_checkpoint or observing.due():
        _observe(run, recorder, step, result)
      if at_checkpoint:
        habits.before_save()
        writer.save(step)
        saved = step
    if saved != step:
      habits.before_save()
      path = writer.save(step)
      say(f'{datetime.now()}: saved {path}')
  return step


class _Every:
  """A clock that says when some seconds have passed since it last did."""

  def __init__(self, seconds):
    self._seconds = seconds
    self._last = time.monotonic()

  def due(self):
    """True once every so many seconds."""
    now = time.monotonic()
    if now - self._last < self._seconds:
      return False
    self._last = now
    return True


def _next(config, batches):
  """The next batch; damage found in the data is explained."""
  try:
    return next(batches)
  except tf.errors.OpError as error:
    paths = data_records.find(config.data_dir, config.subset)
    # Not as a DataError, which says that nothing was written.
    explained = str(data_records.explain(error, paths))
    raise errors.TrainingError(explained) from error


def _one_step(config, run, step, images, labels):
  """Takes one step and looks at its losses; (StepResult, learning rate)."""
  floats = schedules.uses_float_gradients(
    config.floating_grad_epoch, step, config.batch_size, run.num_examples
  )
  take = run.float_step if floats else run.coded_step
  rate = schedules.learning_rate(config, step, run.num_examples)
  result = take(
    images,
    labels,
    tf.constant(step, tf.int64),
    tf.constant(rate, tf.float32),
    tf.constant(schedules.averaging_decay(step), tf.float32),
  )
  _check_finite(run, step, result)
  return result, rate


def _check_finite(run, step, result):
  """Raises where a loss or a gradient is not finite, and says where."""
  entropy = result.entropy.numpy()
  probes = result.probes.numpy()
  if np.isfinite(entropy).all() and np.isfinite(probes).all():
    return
  bad = np.argwhere(~np.isfinite(probes))
  where = [f'loss of worker {i}' for i in np.flatnonzero(~np.isfinite(entropy))]
  where += [
    f'gradient of {run.parameters[variable]} on worker {worker}'
    for worker, variable in bad
  ]
  raise errors.TrainingError(
    f'Step {step + 1}: expected finite numbers, received NaN or infinity in '
    f'the {", ".join(where[:4])}{" and more" if len(where) > 4 else ""}. '
    'Lower --initial_learning_rate or clip with --clip_factor; the last '
    'checkpoint is from before this step and the same command continues from '
    'it.'
  )


def _observe(run, recorder, step, result):
  """Histograms of the variables and of the codes that each tower sent."""
  histograms, sparsity = {}, {}
  coded = (
    result.words[0].shape[1] == run.codec.num_words and not run.codec.lossless
  )
  for place, replica in enumerate(run.replicas):
    pairs = zip(run.parameters, replica.trainable, strict=True)
    histograms.update({f'tower_{place}/{name}': v for name, v in pairs})
    if not coded:
      continue
    # A device's first node stands for the device.
    sent = run.codec.decode_mean([result.words[place][:1]], result.shared)
    for name, gradient in zip(run.parameters, sent, strict=True):
      tag = f'tower_{place}/{name}/binary'
      histograms[f'{tag}/gradients'] = gradient
      sparsity[f'{tag}/sparsity'] = float(tf.math.zero_fraction(gradient))
  recorder.histograms(step, histograms)
  if sparsity:
    recorder.scalars(step, sparsity)
  recorder.flush()
