"""What a run leaves: checkpoints, records and histograms."""

import time
from datetime import datetime

import tensorflow as tf

from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import stored_states
from terngrad.reduce import fragments
from terngrad.training import meter
from terngrad.training import metric
from terngrad.training import metrics
from terngrad.training import records


class RunWriter:
  """Keeps the files of a run."""

  def __init__(self, folder, run, begin, report):
    """Opens them.

    Args:
      folder: path of the run's files.
      run: `training.run.Run`.
      begin: pair (steps taken before, step of the checkpoint that stands in
        the folder or -1).
      report: called with each line for the person who watches.
    """
    self._run = run
    self._writer = checkpoints.Writer(
      folder,
      run.layout,
      run.replicas,
      run.names,
      {stored_states.FOLDER: run.store.variables},
    )
    self._recorder = records.Recorder(folder, step=begin[0])
    for line in self._recorder.cut:
      report(line)
    last = self._recorder.last.get('step', 0)
    if last < begin[1] - begin[1] % run.hooks.log_every:
      report(
        f'{folder}/{records.FILE_NAME}: ends at step {last}; the lines from '
        f'there to step {begin[1]} are lost'
      )
    self._gauge = meter.Meter(run.epochs, self._recorder.last, begin[0])
    self._logged = {}
    self._observing = IntervalTimer(run.hooks.observe_secs)

  def close(self):
    """Closes the records."""
    self._recorder.close()

  def add(self, result):
    """Takes in the `step.StepResult` of a step."""
    self._gauge.add(result)

  def log(self, step, learning_rate):
    """Records what was measured since the last time; returns the line."""
    run = self._run
    self._logged = values = self._gauge.values(
      fragments.of_step(run.codec, step - 1).num_elements,
      learning_rate,
      float(run.regularization()),
      run.replicas[0].scaling,
      run.hooks.measure(),
    )
    self._recorder.scalars(step, values, metric.tags(metrics.TRAINING))
    return run.hooks.line(step, values)

  def end_epoch(self, step, epoch, scores, seconds):
    """Records an epoch whose last step was just logged; returns the line.

    Args:
      step: steps taken.
      epoch: its number, from 1.
      scores: from `Run.score`.
      seconds: that scoring took, which are no time of training.
    """
    self._gauge.leave_out(seconds)
    of_epoch = {'epoch': epoch, **scores}
    self._recorder.scalars(step, of_epoch)
    self._run.hooks.epoch_ended({'step': step, **self._logged, **of_epoch})
    known = {
      'loss': self._logged[metrics.EPOCH_LOSS.name],
      'accuracy': self._logged[metrics.EPOCH_ACCURACY.name],
      **scores,
    }
    said = ', '.join(f'{name} = {value:.4f}' for name, value in known.items())
    scored = f' ({seconds:.1f} s of scoring)' if scores else ''
    return (
      f'{datetime.now()}: epoch {epoch} ended in step {step}, {said}{scored}'
    )

  def observe(self, step, result, at_checkpoint):
    """Records histograms of the variables and of the codes of each tower.

    Args:
      step: steps taken.
      result: `step.StepResult` of the last.
      at_checkpoint: True where they are wanted, whatever the time.
    """
    due = self._observing.due()
    if not (due or at_checkpoint):
      return
    histograms, sparsity = _histograms(self._run, result)
    self._recorder.histograms(step, histograms)
    if sparsity:
      self._recorder.scalars(step, sparsity)
    self._recorder.flush()

  def save(self, step, states):
    """Writes a checkpoint; returns its path.

    Args:
      step: steps taken.
      states: from `stored_states.Store.gather`.
    """
    self._recorder.sync()
    with self._run.store.holding(states):
      return self._writer.save(step)


def _histograms(run, result):
  """(tag to values, tag to the share of zeros in what each tower sent)."""
  histograms, sparsity = {}, {}
  coded = (
    sum(part.shape[1] for part in result.words[0]) == run.codec.num_words
    and not run.codec.lossless
    # What a node sent says nothing by itself where there are more rounds.
    and run.codec.num_rounds == 1
  )
  for index, replica in enumerate(run.replicas):
    pairs = zip(run.parameters, replica.trainable, strict=True)
    histograms.update({f'tower_{index}/{name}': v for name, v in pairs})
    if not coded:
      continue
    # A device's first node stands for the device.
    sent = run.codec.decode_words([result.payloads(index)[:1]], result.shared)
    for name, gradient in zip(run.parameters, sent, strict=True):
      tag = f'tower_{index}/{name}/binary'
      histograms[f'{tag}/gradients'] = gradient
      sparsity[f'{tag}/sparsity'] = float(tf.math.zero_fraction(gradient))
  return histograms, sparsity


class IntervalTimer:
  """A clock that says when some seconds have passed since it last did."""

  def __init__(self, seconds):
    """Starts the clock.

    Args:
      seconds: float; infinity for never.
    """
    self._seconds = seconds
    self._last = time.monotonic()

  def due(self):
    """True once every so many seconds."""
    now = time.monotonic()
    if now - self._last < self._seconds:
      return False
    self._last = now
    return True
