"""The training loop: takes steps, logs, saves and stops."""

import contextlib
import functools
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
from terngrad.config import options as options_lib
from terngrad.config import training as training_options
from terngrad.reduce import gradients
from terngrad.step import loss_scaling
from terngrad.step import schedules
from terngrad.step import step as steps
from terngrad.training import batches
from terngrad.training import execution
from terngrad.training import run as run_lib
from terngrad.training import run_writer


class Outcome(NamedTuple):
  """How a run ended.

  Attributes:
    step: completed steps, with those of earlier runs in the folder.
    stopped_by: number of the signal; None if the run is complete.
  """

  step: int
  stopped_by: int | None


def run_steps(
  config: training_options.TrainConfig,
  run: run_lib.Run,
  begin: run_writer.Begin,
  report: Callable[[str], None],
  show_progress: bool = False,
) -> Outcome:
  """Trains until max_steps, a signal, or --early_stopping.

  Args:
    config: batch size and nodes count all processes.
    run: the assembled run.
    begin: see `run_writer.Begin`.
    report: called with each log line.
    show_progress: True draws a progress bar on the terminal.

  Raises:
    errors.TrainingError: the run had to stop; the last checkpoint is valid.
  """
  with contextlib.ExitStack() as stack:
    stack.enter_context(_explain_failed_steps())
    stack.enter_context(errors.explain_write_errors(config.run.train_dir))
    bar = stack.enter_context(
      tqdm.tqdm(
        total=run.max_steps,
        initial=begin[0],
        unit='step',
        disable=not show_progress,
      )
    )
    writer = None
    if config.cluster.writes_files:
      say = functools.partial(_say_beside, bar, report)
      writer = run_writer.RunWriter(
        config.run, _shown_options(config), run, begin, say
      )
      stack.enter_context(_closing(writer, run.hooks))
    stop = stack.enter_context(
      signals.stop_at_signal(alone=run.exchange.group is None)
    )
    step = _take_steps(config, run, begin, stop, writer, bar)
    with run.hooks.time_limit('End'):
      coordination.barrier(run.exchange, step)
  return Outcome(step, stop.agreed if step < run.max_steps else None)


def _say_beside(
  bar: tqdm.tqdm, report: Callable[[str], object], line: str
) -> None:
  """Reports a line; a progress bar that is shown moves below it."""
  with contextlib.nullcontext() if bar.disable else bar.external_write_mode():
    report(line)


@contextlib.contextmanager
def _explain_failed_steps() -> Iterator[None]:
  """Raises `errors.TrainingError` for TensorFlow's errors."""
  try:
    yield
  except tf.errors.OpError as error:
    raise errors.TrainingError(
      f'A step: expected to finish, received: {error.message} If memory is '
      'short, use a smaller --batch_size or more --num_nodes; the last '
      'checkpoint is valid.'
    ) from error


@contextlib.contextmanager
def _closing(
  writer: run_writer.RunWriter, hooks: execution.Hooks
) -> Iterator[None]:
  """Closes the records at the end, even if a step failed.

  TensorFlow first registers the operation that closes the event file with every
  task. This never returns if a task does not answer, hence the time limit.
  """
  failed = True
  try:
    yield
    failed = False
  finally:
    with hooks.local_time_limit('End of the records'):
      try:
        writer.close(failed)
      except OSError:
        # Closing writes again what could not be written before.
        if not failed:
          raise


class _Taken(NamedTuple):
  """A step that was taken and whose results were not read yet.

  Attributes:
    number: number of the step, from 1.
    result: its result.
    codec: codec of its gradients.
    learning_rate: its learning rate.
  """

  number: int
  result: steps.StepResult
  codec: gradients.GradientCodec
  learning_rate: float


def _take_steps(
  config: training_options.TrainConfig,
  run: run_lib.Run,
  begin: run_writer.Begin,
  stop: signals.Stop,
  writer: run_writer.RunWriter | None,
  bar: tqdm.tqdm,
) -> int:
  """Takes the remaining steps; returns the number of completed steps.

  `writer` is None in processes that write no files.
  """
  step, stop.saved = begin
  saving = run_writer.IntervalTimer(run.hooks.save_secs)
  stream = run.batches(step) if step < run.max_steps else iter(())
  if writer:
    writer.keep_best_of_before()
  # A resumed run may have been over before.
  _, over = _judge(config, run, writer)
  taken: list[_Taken] = []
  is_logged = True
  while step < run.max_steps and not stop.agreed and not over:
    is_best = False
    step += 1
    epoch = run.epochs.ending_epoch(step) if config.run.records_epochs else None
    at_checkpoint = step % config.run.save_iter == 0 or saving.due()
    logs = step % run.hooks.log_every == 0 or step == run.max_steps
    is_logged = bool(logs or at_checkpoint or epoch)
    # Each read waits for the device, which has no work until the next step.
    reads = is_logged or not run.hooks.runs_ahead or step in config.run.profiled
    with writer.profiler.step(step) if writer else contextlib.nullcontext():
      taken.append(_take_step(config, run, step - 1, stream, stop, reads))
    if reads:
      _read(run, taken, stop, bar, writer, is_logged, at_checkpoint)
    if epoch:
      started = time.perf_counter()
      scores = run.score()
      if writer:
        seconds = time.perf_counter() - started
        writer.end_epoch(step, epoch, scores, seconds)
      is_best, over = _judge(config, run, writer)
    if at_checkpoint or is_best:
      _save(run, writer, step, is_best)
      stop.saved = step
  _read(run, taken, stop, bar, writer)
  if writer and not is_logged:
    # A run that continues takes the means of its epoch from this record.
    with run.hooks.local_time_limit(f'Records of step {step}'):
      writer.log(step, run.learning_rate(step - 1))
  if stop.saved != step:
    path = _save(run, writer, step)
    if writer:
      writer.say(f'{datetime.now()}: saved {path}')
  if writer and over:
    writer.mark_end(step)
  return step


def _read(
  run: run_lib.Run,
  taken: list[_Taken],
  stop: signals.Stop,
  bar: tqdm.tqdm,
  writer: run_writer.RunWriter | None,
  logs: bool = False,
  at_checkpoint: bool = False,
) -> None:
  """Reads and records the results of the steps in `taken`, and empties it.

  `logs` is True if the last one is logged, `at_checkpoint` if it is saved.

  Raises:
    errors.TrainingError: the numbers of a step are not finite.
  """
  if not taken:
    return
  for one in taken:
    if not loss_scaling.can_fall(run.replicas[0].scaling):
      _check_finite(run, one)
    stop.agree(one.result, one.number)
    _update_bar(bar, one.result)
  last = taken[-1]
  if writer:
    with run.hooks.local_time_limit(f'Records of step {last.number}'):
      for one in taken:
        writer.gauge.add(one.result)
      if logs:
        writer.log(last.number, last.learning_rate)
      writer.observe(last.number, last.result, at_checkpoint)
  taken.clear()


def _judge(
  config: training_options.TrainConfig,
  run: run_lib.Run,
  writer: run_writer.RunWriter | None,
) -> tuple[bool, bool]:
  """Returns whether the last epoch is the best, and whether the run is over.

  Only the process with the writer has the scores of earlier epochs.
  """
  if not config.run.keep_best:
    return False, False
  best = writer.best if writer else None
  with run.hooks.time_limit('Best epoch'):
    is_best, over = coordination.chief_decides(
      run.exchange, bool(best and best.is_new), bool(best and best.is_over)
    )
  if over and writer and best:
    writer.say(
      f'{datetime.now()}: {config.run.early_stopping} epochs without a better '
      f'{best.name}: the run ends'
    )
  return is_best, over


def _update_bar(bar: tqdm.tqdm, result: steps.StepResult) -> None:
  """Advances the progress bar, if there is one."""
  if not bar.disable:
    bar.set_postfix(
      loss=float(result.entropy.numpy().mean()),
      accuracy=float(result.accuracy.numpy().mean()),
      refresh=False,
    )
  bar.update()


def _save(
  run: run_lib.Run,
  writer: run_writer.RunWriter | None,
  step: int,
  is_best: bool = False,
) -> str | None:
  """Checks that all replicas are equal, then writes a checkpoint.

  Returns:
    The path of the checkpoint; None without a writer.
  """
  with run.hooks.time_limit(f'Step {step}'):
    run.hooks.before_save()
    coordination.assert_equal(run.exchange, run.replicas[0], run.names)
    states = run.store.gather()
  if not writer:
    return None
  with run.hooks.local_time_limit(f'Checkpoint of step {step}'):
    return writer.save(step, states, is_best)


def _take_step(
  config: training_options.TrainConfig,
  run: run_lib.Run,
  step: int,
  stream: Iterator[batches.Batch],
  stop: signals.Stop,
  waits: bool,
) -> _Taken:
  """Takes one step after `step` completed ones.

  `waits` is True to wait until it has finished. Otherwise its payloads, which
  may be as large as gradients, are left out of the result.
  """
  cycle, batch_size = config.codes.floating_grad_epoch, config.data.batch_size
  uses_float = schedules.uses_float_gradients(
    cycle, step, batch_size, run.epochs.num_examples
  )
  train_step, codec = run.select_step(step, uses_float)
  learning_rate = run.learning_rate(step)
  decay = schedules.averaging_decay(
    # A fragment's averages change in its turns only.
    step // max(1, config.devices.fragments),
    config.optimizer.moving_average_decay,
  )
  with (
    batches.explain_read_errors(config.data.data_dir, config.data.subset),
    run.hooks.local_time_limit(f'Data of step {step + 1}'),
  ):
    images, labels = next(stream)
  with run.hooks.time_limit(f'Step {step + 1}'):
    result = train_step.take(
      images,
      labels,
      *steps.host_numbers(step, learning_rate, decay, stop.signal or 0),
    )
    if waits:
      # TensorFlow may return before the step has finished.
      result.entropy.numpy()
    else:
      result = result._replace(words=[])
  return _Taken(step + 1, result, codec, learning_rate)


def _check_finite(run: run_lib.Run, taken: _Taken) -> None:
  """Raises if a loss or a gradient is not finite; names workers and variables.

  Also refuses finite gradients whose sum overflows, because the mean is the
  divided sum.
  """
  result = taken.result
  entropy = result.entropy.numpy()
  probes = result.probes.numpy()
  with np.errstate(over='ignore'):
    usable = np.isfinite(probes * np.float32(len(entropy)))
  if np.isfinite(entropy).all() and usable.all():
    return
  variables = taken.codec.probed_variables()
  names = result.worker_labels or [f'worker {i}' for i in range(len(entropy))]
  where = [f'loss of {names[i]}' for i in np.flatnonzero(~np.isfinite(entropy))]
  where += [
    f'{"sum" if np.isfinite(probes[worker, probe]) else "gradient"} of '
    f'{run.parameters[variables[probe]]} on {names[worker]}'
    for worker, probe in np.argwhere(~usable)
  ]
  raise errors.TrainingError(
    f'Step {taken.number}: expected finite numbers, received NaN or infinity '
    f'in the {", ".join(where[:4])}{" and more" if len(where) > 4 else ""}. '
    'Lower --initial_learning_rate or clip with --clip_factor; the last '
    'checkpoint is from before this step and the same command continues from '
    'it.'
  )


def _shown_options(
  config: training_options.TrainConfig,
) -> dict[str, options_lib.Value]:
  """Returns the options that trackers show: those of other hosts are not."""
  hidden = {option.name for option in options_lib.fields(config.cluster)}
  found = options_lib.by_name(config)
  return {
    name: ','.join(map(str, value)) if isinstance(value, tuple) else value
    for name, value in found.items()
    if name not in hidden
  }
