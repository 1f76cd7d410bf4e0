"""Evaluation: scores the checkpoints of a run, every example once.

Also the parameters of a run that trains, at the end of each epoch.
"""

import contextlib
import pathlib
import time
from datetime import datetime
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from slim.datasets import factory as datasets
from slim.datasets.records import disk
from slim.datasets.records import records as data_records
from slim.nets import factory as nets
from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import trained
from terngrad.cluster import devices
from terngrad.config import options
from terngrad.config import training as training_options
from terngrad.exchange import group as groups
from terngrad.step import model_variables
from terngrad.training import batches
from terngrad.training import execution
from terngrad.training import metric
from terngrad.training import metrics
from terngrad.training import records

_REPORT_EVERY = 100  # batches


class Score(NamedTuple):
  """Of one checkpoint.

  Attributes:
    step: steps taken before it was written.
    values: dict of name to number, of all of `metrics.EVALUATION`.
    num_examples: examples scored.
  """

  step: int
  values: dict
  num_examples: int


def evaluate(config, report, wait=time.sleep):
  """Scores the newest checkpoint, once or each time there is a newer one.

  Polling ends after the checkpoint of the run's last step.

  Args:
    config: `evaluation.EvalConfig`.
    report: called with each line for the person who watches.
    wait: called with the seconds until the next look.

  Returns:
    The last `Score`.

  Raises:
    errors.ConfigError, slim.errors.DataError: it cannot begin.
    errors.CheckpointError: there is no checkpoint and --run_once is set, or it
      is of another net, or does not hold the tower.
    errors.TrainingError: eval_dir cannot be written any more.
  """
  config.validate()
  run = config.run
  for name in ('checkpoint_dir', 'eval_dir'):
    options.folder(name, getattr(run, name))
  scorer = _Scorer(config)
  score = None
  while True:
    path = checkpoints.newest(run.checkpoint_dir)
    if path is None and run.run_once:
      path = checkpoints.find(run.checkpoint_dir)
    if path is None:
      report(f'{datetime.now()}: no checkpoint in {run.checkpoint_dir} yet')
    else:
      try:
        if score and checkpoints.step_of(path) == score.step:
          report(f'{datetime.now()}: step {score.step} is already evaluated')
        else:
          score = scorer.score(path, report)
      except (errors.CheckpointError, tf.errors.OpError):
        if checkpoints.newest(run.checkpoint_dir) == path:
          raise
        # The trainer keeps five checkpoints: this one went while it was read.
        report(f'{datetime.now()}: {path} is gone, looking for a newer one')
        continue
      if score and (run.run_once or score.step >= scorer.max_steps):
        return score
    wait(run.eval_interval_secs)


class _Scorer:
  """The model, the data and the records of an evaluation."""

  def __init__(self, config):
    self._config = config
    data, net = config.data, config.model.net
    devices.grow_memory()
    self._batches, self._split = _open(config, data.subset)
    self._total = min(self._split.count, config.run.num_examples)
    self._device = devices.evaluation_device(config.run.device)
    with tf.device(self._device):
      self._model = nets.build(
        net,
        num_classes=self._split.num_classes,
        image_size=data.image_size,
        channels=self._split.channels,
      )
    self._predict = predictor(self._model, self._device)
    self.max_steps = config.run.max_steps

  def score(self, path, report):
    """The `Score` of a checkpoint; writes its records."""
    net, run = self._config.model.net, self._config.run
    layout = checkpoints.read_layout(path)
    self.max_steps = min(run.max_steps, layout.max_steps)
    expected = {'net': net, 'num_classes': self._split.num_classes}
    checkpoints.check_layout(path, layout, expected)
    trained.restore(self._model, path, layout, run.tower, run.restore_avg_var)
    _open_folder(run.eval_dir)
    step = checkpoints.step_of(path)
    report(f'{datetime.now()}: loaded {path} at step {step}')
    score = Score(step, self._count(report), self._total)
    said = metric.texts(metrics.EVALUATION, score.values, 'line')
    report(
      f'{datetime.now()}: {" ".join(said)} [{score.num_examples} examples]'
    )
    try:
      self._record(score, report)
    except OSError as error:
      raise errors.TrainingError(
        f'{run.eval_dir}: expected to be written, received: {error.strerror}. '
        'Make room; the same command evaluates again.'
      ) from error
    return score

  def _count(self, report):
    """The values of a `Score`."""
    data = self._config.data
    report(f'{datetime.now()}: starting evaluation on {data.subset}')
    try:
      return count(
        self._predict, self._batches, self._total, data.batch_size, report
      )
    except data_records.FAILURES as error:
      paths = data_records.find(data.data_dir, data.subset)
      raise data_records.explain(error, paths) from error

  def _record(self, score, report):
    """Writes the score, and histograms of weights and activations."""
    recorder = records.Recorder(self._config.run.eval_dir)
    for line in recorder.cut:
      report(f'{datetime.now()}: {line}')
    with contextlib.closing(recorder):
      recorder.scalars(
        score.step,
        {**score.values, 'num_examples': score.num_examples},
        metric.tags(metrics.EVALUATION),
      )
      plan = model_variables.variables_of(self._model)
      named = zip(plan.names, plan.trainable, strict=False)
      recorder.histograms(score.step, {name: v.value for name, v in named})
      images, _ = next(iter(self._batches))
      layers = [layer for layer in self._model.layers if layer.weights]
      outputs = keras.Model(
        self._model.inputs, [layer.output for layer in layers]
      )(images, training=False)
      for layer, output in zip(layers, tf.nest.flatten(outputs), strict=True):
        recorder.histograms(score.step, {f'{layer.name}/activations': output})
        zeros = float(tf.math.zero_fraction(output))
        recorder.event(score.step, f'{layer.name}/sparsity', zeros)
      recorder.sync()


def predictor(model, device):
  """Makes the traced function that scores a batch.

  Args:
    model: maps images to logits [b, classes], or to a list of them and the
      logits of auxiliary heads.
    device: name of the device to run on.

  Returns:
    A `tf.function` of (sums float64 [metrics], images [b, ...], labels int32
    [b]) that returns sums, to which is added what each of `metrics.EVALUATION`
    says of the batch.
  """

  @tf.function(reduce_retracing=True)
  def add(sums, images, labels):
    with tf.device(device):
      logits = nets.logits_of(model(images, training=False))
      found = [m.compute(labels, logits) for m in metrics.EVALUATION]
      # Counts are exact in float64.
      values = [tf.cast(values, tf.float64) for values in found]
      return sums + tf.reduce_sum(values, axis=1)

  return add


def count(predict, batches, total, batch_size, report):
  """Scores the first examples of a data set.

  Args:
    predict: from `predictor`.
    batches: `tf.data.Dataset` of (images, labels), `batch_size` a batch.
    total: examples to score.
    batch_size: int.
    report: called with a line every hundred batches.

  Returns:
    dict of name to the mean over the examples, of all of `metrics.EVALUATION`.
  """
  number_of_batches = -(-total // batch_size)
  sums = tf.zeros([len(metrics.EVALUATION)], tf.float64)
  since = time.perf_counter()
  for number, batch in enumerate(batches.take(number_of_batches), start=1):
    left = total - (number - 1) * batch_size
    if left < batch_size:
      # The last batch is cut where fewer examples than there are are asked.
      batch = [part[:left] for part in batch]
    sums = predict(sums, *batch)
    if number % _REPORT_EVERY == 0:
      now = time.perf_counter()
      per_batch = (now - since) / _REPORT_EVERY
      since = now
      report(
        f'{datetime.now()}: [{number} batches out of {number_of_batches}] '
        f'({batch_size / per_batch:.1f} examples/sec; '
        f'{per_batch:.3f} sec/batch)'
      )
  names = (m.name for m in metrics.EVALUATION)
  return dict(zip(names, (sums.numpy() / total).tolist(), strict=True))


class Scorer:
  """Scores a model at the end of an epoch.

  Every process takes its share of the batches; what they count is added.
  """

  def __init__(
    self,
    config: training_options.TrainConfig,
    model: keras.Model,
    context: execution.ExecutionContext,
  ) -> None:
    """Opens the subsets.

    Args:
      config: a valid one, with subsets to score.
      model: with the variables of the first replica.
      context: where the run takes place.

    Raises:
      slim.errors.DataError: a subset is not there.
    """
    self._context = context
    self._data_dir = config.data.data_dir
    self._predict = predictor(model, context.exchange.devices[0])
    # A name that is given twice is scored once.
    self._subsets = {
      name: _open(config, name) for name in config.run.eval_subsets
    }

  def score(self) -> dict[str, float]:
    """Scores the present parameters; all processes must call it.

    Returns:
      dict of '<subset>_<metric>' to the mean over all examples of a subset, of
      all of `metrics.EVALUATION` and all of --eval_subsets.
    """
    group = self._context.exchange.group
    part = (1, 0) if group is None else (group.size, group.rank)
    sums = []
    for name, (stream, _) in self._subsets.items():
      with batches.explaining(self._data_dir, name):
        sums.append(_add_up(self._predict, stream.shard(*part)))
    sums = _of_all(np.stack(sums), group, self._context.hooks)
    return {
      metrics.epoch_name(name, kind): float(total / split.count)
      for (name, (_, split)), row in zip(
        self._subsets.items(), sums, strict=True
      )
      for kind, total in zip(metrics.EVALUATION, row, strict=True)
    }


def _add_up(predict, stream):
  """Scores all examples of a data set.

  Args:
    predict: from `predictor`.
    stream: `tf.data.Dataset` of batches (images, labels).

  Returns:
    float64 [metrics], the sums over the examples, of `metrics.EVALUATION`.
  """
  sums = tf.zeros([len(metrics.EVALUATION)], tf.float64)
  for batch in stream:
    sums = predict(sums, *batch)
  return sums.numpy()


def _open(config, subset):
  """A subset as evaluation reads it; see `datasets.load`."""
  data = config.data
  return datasets.load(
    data.dataset_name,
    data.data_dir,
    subset,
    datasets.ReadOptions(
      image_size=data.image_size,
      batch_size=data.batch_size,
      training=False,
      net=config.model.net,
      preprocessing=data.preprocessing,
      labels_offset=data.labels_offset,
    ),
    data.num_classes or None,
  )


def _of_all(
  sums: np.ndarray, group: groups.Group | None, hooks: execution.Hooks
) -> np.ndarray:
  """The sums float64 [subsets, metrics] of all processes together."""
  if group is None:
    return sums
  # What travels is int32; counts stay exact.
  own = sums.view(np.int32)[np.newaxis]
  with hooks.time_limit('Scores of an epoch'):
    everyone = group.all_gather_now(own)
  return everyone.view(np.float64).sum(axis=0)


def _open_folder(path):
  try:
    disk.make_folder(pathlib.Path(path))
  except OSError as error:
    raise errors.ConfigError(
      f'eval_dir: expected a folder that can be written, received {path} '
      f'({error.strerror}). Choose another --eval_dir.'
    ) from error
