"""Writes the files of a run: checkpoints, records and histograms."""

import os
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import tensorflow as tf

from slim.nets import graphs
from terngrad.checkpoint import best
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import folder
from terngrad.checkpoint import stored_states
from terngrad.config import options as options_lib
from terngrad.config import run as run_options
from terngrad.reduce import fragments
from terngrad.step import step as steps
from terngrad.training import best_epoch
from terngrad.training import meter
from terngrad.training import metric
from terngrad.training import metrics
from terngrad.training import profiling
from terngrad.training import records
from terngrad.training import run as run_lib

# (completed steps, step of the checkpoint in the folder or -1 without one).
Begin = tuple[int, int]


class RunWriter:
  """Writes the checkpoints, records and histograms of a run.

  Attributes:
    gauge: measures the steps.
    profiler: profiles the steps of --profile_steps.
    best: the best epoch so far; None without --keep_best.
    say: called with each log line.
  """

  def __init__(
    self,
    options: run_options.RunOptions,
    shown: dict[str, options_lib.Value],
    run: run_lib.Run,
    begin: Begin,
    say: Callable[[str], None],
  ) -> None:
    """Opens the records; logs records that are missing or were dropped.

    Args:
      options: the options of the run.
      shown: the options that trackers show, by name.
      run: the run.
      begin: completed steps, and the checkpoint's step or -1.
      say: called with each log line.
    """
    self._folder = train_dir = options.train_dir
    self.say = say
    self._run = run
    self._writer = checkpoints.Writer(
      train_dir,
      run.layout,
      run.replicas,
      run.names,
      {stored_states.FOLDER: run.store.variables},
      options.keep_checkpoints,
    )
    self._recorder = records.Recorder(
      train_dir, begin[0], options.log_to, shown
    )
    for line in self._recorder.remarks:
      say(line)
    self._write_graph()
    last = self._recorder.last.get('step', 0)
    if last < begin[1] - begin[1] % run.hooks.log_every:
      say(
        f'{train_dir}/{records.FILE_NAME}: ends at step {last}; the lines from '
        f'there to step {begin[1]} are lost'
      )
    self.gauge = meter.Meter(run.epochs, self._recorder.last, begin[0])
    self.profiler = profiling.Profiler(
      train_dir, options.profiled, say, self.gauge.exclude
    )
    self.best = None
    if options.keep_best:
      self.best = best_epoch.BestEpoch(
        options.keep_best,
        options.eval_subsets[0],
        options.early_stopping,
        records.read(train_dir),
      )
    self._logged: dict[str, float] = {}
    self._observing = IntervalTimer(run.hooks.observe_secs)

  def _write_graph(self) -> None:
    """Writes the net's graph, unless an earlier part of the run did."""
    if records.has_graph(self._folder):
      return
    graph = graphs.trace(self._run.model)
    if graph.ByteSize() <= records.MAX_GRAPH:
      self._recorder.graph(graph)
      self._recorder.flush()
    else:
      self.say(
        f'{self._folder}: the graph of the net is left out, since it has more '
        f'than {records.MAX_GRAPH} bytes'
      )

  def keep_best_of_before(self) -> None:
    """Puts the best epoch's checkpoint into its folder if it is not there.

    The run was killed between the two, or it had no --keep_best.
    """
    if not self.best or self.best.step in (0, best.step_in(self._folder)):
      return
    path = os.path.join(self._folder, f'{checkpoints.NAME}-{self.best.step}')
    if os.path.exists(f'{path}.index'):
      self._keep_best(path)
    else:
      self.say(
        f'{path}: the checkpoint of the best epoch so far is gone; the next '
        'better one is kept'
      )

  def mark_end(self, step: int) -> None:
    """Records for evaluators that the run ended at this step."""
    folder.mark_end(self._folder, step)

  def _keep_best(self, path: str) -> None:
    """Puts a checkpoint into the folder of the best one, and logs its path."""
    self.say(
      f'{datetime.now()}: best epoch so far: {best.keep(path)} (scored without '
      'moving averages: read it with --restore_avg_var=false)'
    )

  def close(self, failed: bool = False) -> None:
    """Closes the profile and the records; trackers show whether it failed."""
    try:
      self.profiler.close()
    finally:
      self._recorder.close(failed)

  def log(self, step: int, learning_rate: float) -> None:
    """Records and logs the metrics since the last record."""
    run = self._run
    self._logged = self.gauge.values(
      fragments.step_codec(run.codec, step - 1).num_elements,
      learning_rate,
      float(run.regularization()),
      run.replicas[0].scaling,
      run.hooks.measure(),
    )
    self._recorder.scalars(step, self._logged, metric.tags(metrics.TRAINING))
    self.say(run.hooks.line(step, self._logged))

  def end_epoch(
    self, step: int, epoch: int, scores: dict[str, float], seconds: float
  ) -> None:
    """Records and logs the end of an epoch, after `log` for its last step.

    Args:
      step: completed steps.
      epoch: number of the epoch, from 1.
      scores: result of `Run.score`.
      seconds: duration of the scoring; it does not count as training time.
    """
    self.gauge.exclude(seconds)
    epoch_record = {'epoch': epoch, **scores}
    if self.best:
      self.best.add({'step': step, **scores})
    self._recorder.scalars(step, epoch_record)
    self._run.hooks.epoch_ended({'step': step, **self._logged, **epoch_record})
    known = {
      'loss': self._logged[metrics.EPOCH_LOSS.name],
      'accuracy': self._logged[metrics.EPOCH_ACCURACY.name],
      **scores,
    }
    text = ', '.join(f'{name} = {value:.4f}' for name, value in known.items())
    scored = f' ({seconds:.1f} s of scoring)' if scores else ''
    self.say(
      f'{datetime.now()}: epoch {epoch} ended in step {step}, {text}{scored}'
    )

  def observe(
    self, step: int, result: steps.StepResult, at_checkpoint: bool
  ) -> None:
    """Records histograms of each tower's variables and decoded gradients.

    Does nothing before `Hooks.observe_secs` have passed since the last time,
    unless `at_checkpoint` is True.
    """
    if self._observing.due() or at_checkpoint:
      histograms, sparsity = _histograms(self._run, result)
      self._recorder.histograms(step, histograms)
      if sparsity:
        self._recorder.scalars(step, sparsity)
      self._recorder.flush()

  def save(self, step: int, states: dict[str, Any], is_best: bool) -> str:
    """Writes a checkpoint with the gathered states; returns its path.

    `is_best` puts it into the folder `checkpoint.best.FOLDER` too.
    """
    self._recorder.sync()
    with self._run.store.hold(states):
      path = self._writer.save(step)
    if is_best:
      self._keep_best(path)
    return path


def _histograms(
  run: run_lib.Run, result: steps.StepResult
) -> tuple[dict[str, tf.Tensor | tf.Variable], dict[str, float]]:
  """Returns, by tag, values and the fraction of zeros that each tower sent."""
  histograms = {
    f'tower_{index}/{name}': variable
    for index, replica in enumerate(run.replicas)
    for name, variable in zip(run.parameters, replica.trainable, strict=True)
  }
  sparsity = {}
  coded = (
    sum(part.shape[1] for part in result.words[0]) == run.codec.num_words
    and not run.codec.lossless
    and run.codec.decodes_words
  )
  for index, words in enumerate(result.words if coded else ()):
    if not words:
      continue
    # Shows the first node of each device.
    sent = run.codec.decode_words([result.payloads(index)[:1]], result.shared)
    for name, gradient in zip(run.parameters, sent, strict=True):
      tag = f'tower_{index}/{name}/binary'
      histograms[f'{tag}/gradients'] = gradient
      sparsity[f'{tag}/sparsity'] = float(tf.math.zero_fraction(gradient))
  return histograms, sparsity


class IntervalTimer:
  """An interval timer: `due` returns True once per interval."""

  def __init__(self, seconds: float) -> None:
    """Starts an interval of some seconds; infinity never ends."""
    self._seconds = seconds
    self._last = time.monotonic()

  def due(self) -> bool:
    """Returns True, and restarts the interval, if it has passed."""
    now = time.monotonic()
    is_due = now - self._last >= self._seconds
    if is_due:
      self._last = now
    return is_due
