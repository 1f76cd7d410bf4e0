"""Evaluation: scores the checkpoints of a run, every example once."""

import contextlib
import os
import time
from datetime import datetime
from typing import NamedTuple

import keras
import tensorflow as tf

from slim.datasets import factory as datasets
from slim.datasets import records as data_records
from slim.nets import factory as nets
from terngrad.training import checkpoints
from terngrad.training import devices
from terngrad.training import errors
from terngrad.training import records
from terngrad.training import replicas
from terngrad.training import trained

_REPORT_EVERY = 100  # batches


class Score(NamedTuple):
  """Of one checkpoint.

  Attributes:
    step: steps taken before it was written.
    precision: share of examples whose label has the largest logit.
    recall: share whose label is among the five largest logits.
    num_examples: examples scored.
  """

  step: int
  precision: float
  recall: float
  num_examples: int


def evaluate(config, report, wait=time.sleep):
  """Scores the newest checkpoint, once or each time there is a newer one.

  Polling ends after the checkpoint of the run's last step.

  Args:
    config: `config.EvalConfig`.
    report: called with each line for the person who watches.
    wait: called with the seconds until the next look.

  Returns:
    The last `Score`.

  Raises:
    errors.ConfigError, slim.errors.DataError: it cannot begin.
    errors.CheckpointError: there is no checkpoint and --run_once is set, or it
      is of another net, or does not hold the tower.
  """
  config.validate()
  scorer = _Scorer(config)
  score = None
  while True:
    path = checkpoints.newest(config.checkpoint_dir)
    if path is None and config.run_once:
      path = checkpoints.find(config.checkpoint_dir)
    if path is None:
      report(f'{datetime.now()}: no checkpoint in {config.checkpoint_dir} yet')
    else:
      try:
        if score and checkpoints.step_of(path) == score.step:
          report(f'{datetime.now()}: step {score.step} is already evaluated')
        else:
          score = scorer.score(path, report)
      except (errors.CheckpointError, tf.errors.OpError):
        if checkpoints.newest(config.checkpoint_dir) == path:
          raise
        # The trainer keeps five checkpoints: this one went while it was read.
        report(f'{datetime.now()}: {path} is gone, looking for a newer one')
        continue
      if score and (config.run_once or score.step >= scorer.max_steps):
        return score
    wait(config.eval_interval_secs)


class _Scorer:
  """The model, the data and the records of an evaluation."""

  def __init__(self, config):
    self._config = config
    devices.grow_memory()
    self._batches, self._split = datasets.load(
      config.dataset_name,
      config.data_dir,
      config.subset,
      datasets.Delivery(
        image_size=config.image_size,
        batch_size=config.batch_size,
        training=False,
        net=config.net,
        preprocessing=config.preprocessing,
        labels_offset=config.labels_offset,
      ),
    )
    self._total = min(self._split.count, config.num_examples)
    self._device = devices.evaluation_device(config.device)
    with tf.device(self._device):
      self._model = trained.build(
        config, self._split.num_classes, self._split.channels
      )
    self._predict = tf.function(self._hits, reduce_retracing=True)
    self.max_steps = config.max_steps

  def score(self, path, report):
    """The `Score` of a checkpoint; writes its records."""
    config = self._config
    layout = checkpoints.read_layout(path)
    self.max_steps = min(config.max_steps, layout.max_steps)
    trained.restore(self._model, config, path, layout, self._split.num_classes)
    _open_folder(config.eval_dir)
    step = checkpoints.step_of(path)
    report(f'{datetime.now()}: loaded {path} at step {step}')
    precision, recall = self._count(report)
    score = Score(
      step, precision / self._total, recall / self._total, self._total
    )
    report(
      f'{datetime.now()}: precision @ 1 = {score.precision:.4f} '
      f'recall @ 5 = {score.recall:.4f} [{score.num_examples} examples]'
    )
    self._record(score)
    return score

  def _count(self, report):
    """(examples right at 1, right at 5)."""
    batch_size = self._config.batch_size
    count = -(-self._total // batch_size)
    report(f'{datetime.now()}: starting evaluation on {self._config.subset}')
    first = fifth = tf.constant(0, tf.int64)
    since = time.perf_counter()
    try:
      for number, batch in enumerate(self._batches.take(count), start=1):
        # The last batch is cut where fewer examples than there are are asked.
        left = self._total - (number - 1) * batch_size
        right, near = self._predict(*(part[:left] for part in batch))
        first, fifth = first + right, fifth + near
        if number % _REPORT_EVERY == 0:
          now = time.perf_counter()
          per_batch = (now - since) / _REPORT_EVERY
          since = now
          report(
            f'{datetime.now()}: [{number} batches out of {count}] '
            f'({batch_size / per_batch:.1f} examples/sec; '
            f'{per_batch:.3f} sec/batch)'
          )
    except tf.errors.OpError as error:
      paths = data_records.find(self._config.data_dir, self._config.subset)
      raise data_records.explain(error, paths) from error
    return int(first), int(fifth)

  def _hits(self, images, labels):
    """(int64 [] labels that lead, int64 [] labels among the first five)."""
    with tf.device(self._device):
      logits = nets.logits_of(self._model(images, training=False))
      five = min(5, logits.shape[-1])
      return tuple(
        tf.math.count_nonzero(tf.math.in_top_k(labels, logits, k))
        for k in (1, five)
      )

  def _record(self, score):
    """Writes accuracies, and histograms of weights and activations."""
    recorder = records.Recorder(self._config.eval_dir)
    with contextlib.closing(recorder):
      recorder.scalars(
        score.step,
        {
          'precision_at_1': score.precision,
          'recall_at_5': score.recall,
          'num_examples': score.num_examples,
        },
        {'precision_at_1': 'Accuracy @ 1', 'recall_at_5': 'Accuracy @ 5'},
      )
      plan = replicas.layout(self._model)
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


def _open_folder(path):
  try:
    os.makedirs(path, exist_ok=True)
  except OSError as error:
    raise errors.ConfigError(
      f'eval_dir: expected a folder that can be written, received {path} '
      f'({error.strerror}). Choose another --eval_dir.'
    ) from error
