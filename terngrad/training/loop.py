"""The training loop: steps, records, checkpoints, signals."""

import contextlib
import os
import signal
import threading
from datetime import datetime
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tqdm

from slim.datasets import records as data_records
from terngrad.exchange import cluster as clusters
from terngrad.exchange import watchdog
from terngrad.training import assembly
from terngrad.training import checkpoints
from terngrad.training import errors
from terngrad.training import folder
from terngrad.training import loss_scaling
from terngrad.training import meter
from terngrad.training import pretrained
from terngrad.training import records
from terngrad.training import resume
from terngrad.training import schedules
from terngrad.training import together

_LOG_EVERY = 10


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
  if config.log_device_placement:
    tf.debugging.set_log_device_placement(True)
  if config.tasks:
    report(clusters.check_network(config.tasks, config.allow_insecure_network))
  # Of several processes the first alone keeps files and talks.
  writes = config.keeps_files
  if not writes:
    report, show_progress = _silence, False
  with contextlib.ExitStack() as alone:
    there = writes and os.path.isdir(config.train_dir)
    if there:
      alone.enter_context(folder.alone_in(config.train_dir))
    with together.within(
      config.tasks, config.start_timeout, 'Start', watchdog.limit_start
    ):
      run = assembly.assemble(config)
      begin = _begin(config, run, report) if writes else (0, -1)
      begin = together.begin(run.exchange, run.replicas, begin)
    if writes:
      folder.make(config.train_dir, config.overwrite)
      if not there:
        alone.enter_context(folder.alone_in(config.train_dir))
    return _continue(config, run, begin, report, show_progress)


def _within(config, what):
  """Ends a wait for other tasks; see `together.within`."""
  seconds = config.step_timeout + together.GRACE_SECONDS
  return together.within(config.tasks, seconds, what)


def _silence(line):
  del line


def _begin(config, run, report):
  """Restores; (steps taken before, step of train_dir's checkpoint or -1)."""
  first = 0 if config.overwrite else resume.continue_run(config, run, report)
  saved = first or -1
  if first == 0:
    first = pretrained.start(config, run, report)
  return first, saved


def _continue(config, run, begin, report, show_progress):
  """Trains on from `begin`; see `_run_steps`."""
  keeper = _Keeper(config, run, begin) if config.keeps_files else None
  with contextlib.ExitStack() as stack:
    if keeper:
      stack.enter_context(contextlib.closing(keeper.recorder))
    stop = stack.enter_context(_signals(run.exchange))
    try:
      step = _run_steps(config, run, begin, stop, keeper, report, show_progress)
      with _within(config, 'End'):
        together.end(run.exchange, step)
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
  return Outcome(step, stop.agreed if step < config.max_steps else None)


class _Keeper:
  """Keeps the files of a run."""

  def __init__(self, config, run, begin):
    self.writer = checkpoints.Writer(
      config.train_dir, run.layout, run.replicas, run.names
    )
    self.recorder = records.Recorder(config.train_dir, step=begin[0])
    self.gauge = meter.Meter(config.batch_size, self.recorder.last)


def _run_steps(config, run, begin, stop, keeper, report, show_progress):
  """Runs the steps that are left; returns the steps taken.

  `begin` is the pair (steps taken before, step of the checkpoint that stands in
  train_dir or -1); `keeper` is None in processes that keep no files.
  """
  step, saved = begin
  bar = tqdm.tqdm(
    total=config.max_steps,
    initial=step,
    unit='step',
    disable=not show_progress,
  )
  say = bar.write if show_progress else report
  with bar:
    batches = run.batches(step) if step < config.max_steps else None
    while step < config.max_steps and not stop.agreed:
      result, rate = _one_step(config, run, step, batches, stop)
      step += 1
      stop.agree(result)
      bar.update()
      at_checkpoint = step % config.save_iter == 0
      logs = step % _LOG_EVERY == 0 or step == config.max_steps or at_checkpoint
      if keeper:
        keeper.gauge.add(result)
      if keeper and logs:
        regularization = float(run.regularization())
        values = keeper.gauge.values(
          run.codec.num_elements, rate, regularization
        ) | loss_scaling.scalars(run.replicas[0].scaling)
        keeper.recorder.scalars(step, values, meter.TAGS)
        say(meter.log_line(step, values))
      if at_checkpoint:
        if keeper:
          _observe(run, keeper.recorder, step, result)
        _save(config, run, keeper, step)
        saved = step
    if saved != step:
      path = _save(config, run, keeper, step)
      say(f'{datetime.now()}: saved {path}')
  return step


def _save(config, run, keeper, step):
  """Proves that all replicas are equal; writes a checkpoint, its path."""
  with _within(config, f'Step {step}'):
    together.check_equal(run.exchange, run.replicas[0], run.names)
  return keeper.writer.save(step) if keeper else None


def _next(config, batches):
  """The next batch; damage found in the data is explained."""
  try:
    return next(batches)
  except tf.errors.OpError as error:
    paths = data_records.find(config.data_dir, config.subset)
    # Not as a DataError, which says that nothing was written.
    explained = str(data_records.explain(error, paths))
    raise errors.TrainingError(explained) from error


def _one_step(config, run, step, batches, stop):
  """Takes one step and looks at its losses; (StepResult, learning rate)."""
  floats = schedules.uses_float_gradients(
    config.floating_grad_epoch, step, config.batch_size, run.num_examples
  )
  take = run.float_step if floats else run.coded_step
  rate = schedules.learning_rate(config, step, run.num_examples)
  decay = schedules.averaging_decay(step, config.moving_average_decay)
  images, labels = _next(config, batches)
  with _within(config, f'Step {step + 1}'):
    result = take(
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
    _check_finite(run, step, result)
  return result, rate


def _check_finite(run, step, result):
  """Raises where a loss or a gradient is not finite, and says where."""
  entropy = result.entropy.numpy()
  probes = result.probes.numpy()
  if np.isfinite(entropy).all() and np.isfinite(probes).all():
    return
  bad = np.argwhere(~np.isfinite(probes))
  variables = np.arange(len(run.parameters))
  if probes.shape[1] == run.codec.num_probes:  # else a float32 step's
    variables = run.codec.probed_variables()
  where = [f'loss of worker {i}' for i in np.flatnonzero(~np.isfinite(entropy))]
  where += [
    f'gradient of {run.parameters[variables[probe]]} on worker {worker}'
    for worker, probe in bad
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


class _Stop:
  """Remembers the first signal that asked to stop.

  Several processes stop after the same step: that before which one of them had
  been asked.
  """

  def __init__(self, exchange):
    self.signal = None
    self._alone = exchange.group is None
    self._told = 0

  def agree(self, result):
    """Takes in what the `step.StepResult` of a step tells of the others."""
    if not self._alone:
      self._told = int(result.stop)

  @property
  def agreed(self):
    """The signal to stop at now, or None."""
    return self.signal if self._alone else self._told or None


@contextlib.contextmanager
def _signals(exchange):
  """Turns SIGTERM and SIGINT into a stop after the step; a second one kills."""
  stop = _Stop(exchange)
  if threading.current_thread() is not threading.main_thread():
    yield stop
    return

  def handle(number, frame):
    del frame
    stop.signal = number
    signal.signal(number, previous[number])

  previous = {
    number: signal.signal(number, handle)
    for number in (signal.SIGTERM, signal.SIGINT)
  }
  try:
    yield stop
  finally:
    for number, handler in previous.items():
      signal.signal(number, handler)
