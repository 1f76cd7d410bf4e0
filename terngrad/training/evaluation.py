"""Scores the checkpoints of a run; every example counts once."""

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import keras
import tensorflow as tf

from slim import errors as data_errors
from slim.datasets import catalog
from slim.datasets import factory as datasets
from slim.datasets.records import disk
from slim.nets import factory as nets
from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import folder
from terngrad.checkpoint import trained
from terngrad.cluster import devices
from terngrad.codec.stages import tracing
from terngrad.config import evaluation as evaluation_options
from terngrad.config import model as model_options
from terngrad.config import options
from terngrad.step import model_variables
from terngrad.training import batches as batches_lib
from terngrad.training import metric
from terngrad.training import metrics
from terngrad.training import records

_REPORT_BATCHES = 100  # batches
# Options that evaluation takes from the checkpoint if they are not given.
_AS_TRAINED = ('image_size', 'labels_offset', 'preprocessing')

# (sums, images, labels) -> sums; see `predictor`.
Predict = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


class CheckpointScore(NamedTuple):
  """The score of one checkpoint.

  Attributes:
    step: training step of the checkpoint.
    values: the value of every metric of `metrics.EVALUATION`, by name; of text
      also those of `metrics.TEXT`.
    num_examples: number of examples scored.
  """

  step: int
  values: dict[str, float]
  num_examples: int


def evaluate(
  config: evaluation_options.EvalConfig,
  report: Callable[[str], None],
  wait: Callable[[float], None] = time.sleep,
) -> CheckpointScore:
  """Scores the newest checkpoint, once or whenever there is a newer one.

  Polling ends after the checkpoint of the run's last step.

  Args:
    config: the configuration of the evaluation.
    report: called with each log line.
    wait: called with the seconds until the next poll.

  Returns:
    The last score.

  Raises:
    errors.ConfigError, slim.errors.DataError: the evaluation cannot start.
    errors.CheckpointError: --run_once is set and there is no checkpoint; or the
      checkpoint holds another network, or lacks the chosen tower.
    errors.TrainingError: eval_dir is no longer writable.
  """
  config.validate()
  run = config.run
  for name in ('checkpoint_dir', 'eval_dir'):
    options.folder(name, getattr(run, name))
  scorer = _Scorer(config)
  # No newer checkpoint follows one that is named.
  once = run.run_once or checkpoints.is_prefix(run.checkpoint_dir)
  find = checkpoints.find if once else checkpoints.newest
  score = None
  while True:
    path = find(run.checkpoint_dir)
    if path is None:
      report(f'{datetime.now()}: no checkpoint in {run.checkpoint_dir} yet')
    else:
      try:
        if score and checkpoints.step_of(path) == score.step:
          report(f'{datetime.now()}: step {score.step} is already evaluated')
        else:
          score = scorer.score(path, report)
      except (errors.CheckpointError, tf.errors.OpError):
        if find(run.checkpoint_dir) == path:
          raise
        # The trainer keeps few checkpoints and deleted this one meanwhile.
        report(f'{datetime.now()}: {path} was deleted, looking for a newer one')
        continue
    end = min(scorer.max_steps, folder.early_end(run.checkpoint_dir))
    if score and (once or score.step >= end):
      return score
    wait(run.eval_interval_secs)


class _Scorer:
  """Scores checkpoints with one net and one data set."""

  def __init__(self, config: evaluation_options.EvalConfig) -> None:
    self._config = config
    devices.grow_memory()
    # Reports wrong options before there is a checkpoint.
    self._open(config.data)
    self.max_steps = config.run.max_steps

  def _open(self, data: model_options.DataOptions) -> None:
    """Opens the data; the net for it is built with the next checkpoint."""
    net = self._config.model.net
    self._data = data
    self._batches, self._split = open_subset(
      data, net, data.subset, self._config.run.num_examples
    )
    self._predict: Predict | None = None

  def _build(self) -> Predict:
    """Builds the net for the opened data."""
    device = devices.evaluation_device(self._config.run.device)
    with tf.device(device):
      self._model = nets.build(
        self._config.model.net,
        num_classes=self._split.num_classes,
        image_size=self._data.image_size,
        channels=self._split.channels,
      )
    self._predict = predictor(self._model, device)
    return self._predict

  def score(self, path: str, report: Callable[[str], None]) -> CheckpointScore:
    """Scores a checkpoint and writes its records."""
    net, run = self._config.model.net, self._config.run
    layout = checkpoints.read_layout(path)
    data = _data_as_trained(self._config, layout, report)
    if data != self._data:
      self._open(data)
    self.max_steps = layout.max_steps
    if self._config.is_given('max_steps'):
      self.max_steps = min(run.max_steps, layout.max_steps)
    checkpoints.check_layout(
      path, layout, {'net': net, 'num_classes': self._split.num_classes}
    )
    if self._split.text:
      tokenizer = self._split.text.tokenizer_digest
      checkpoints.check_tokenizer(path, layout, tokenizer)
    predict = self._predict or self._build()
    trained.restore(self._model, path, layout, run.tower, run.restore_avg_var)
    _open_folder(run.eval_dir)
    step = checkpoints.step_of(path)
    report(f'{datetime.now()}: loaded {path} at step {step}')
    report(f'{datetime.now()}: starting evaluation on {data.subset}')
    total, whole = self._split.count, self._split.num_examples
    if run.num_examples < whole:
      chosen = (
        'at equal distances'
        if catalog.find(data.dataset_name).storage in ('folder', 'database')
        else 'the first'
      )
      report(f'{datetime.now()}: {total} of {whole} examples, {chosen}')
    with batches_lib.explain_read_errors(
      data.data_dir, data.subset, data_errors.DataError
    ):
      values = score_examples(
        predict, self._batches, total, data.batch_size, report
      )
    if self._split.text:
      bits = self._split.text.bits_per_nat(
        data.subset, self._split.num_examples
      )
      values |= metrics.text_scores(values['loss'], bits)
    texts = metric.texts(metrics.evaluated(), values, 'line')
    report(f'{datetime.now()}: {" ".join(texts)} [{total} examples]')
    score = CheckpointScore(step, values, total)
    with errors.explain_write_errors(run.eval_dir):
      self._record(score, report)
    return score

  def _record(
    self, score: CheckpointScore, report: Callable[[str], None]
  ) -> None:
    """Writes the score and histograms of weights and activations."""
    recorder = records.Recorder(self._config.run.eval_dir)
    for line in recorder.remarks:
      report(f'{datetime.now()}: {line}')
    with contextlib.closing(recorder):
      recorder.scalars(
        score.step,
        {**score.values, 'num_examples': score.num_examples},
        metric.tags(metrics.evaluated()),
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


def _data_as_trained(
  config: evaluation_options.EvalConfig,
  layout: checkpoints.Layout,
  report: Callable[[str], None],
) -> evaluation_options.EvalDataOptions:
  """Returns the data options, completed with those of the training.

  Options that were given are kept, and a difference is logged.
  """
  recorded = trained.recorded_options(layout)
  changes = {}
  for name in _AS_TRAINED:
    given = getattr(config.data, name)
    value = recorded.get(name, given)
    if value == given:
      continue
    if config.is_given(name):
      report(
        f'{datetime.now()}: warning: --{name}={given} differs from the '
        f'--{name}={value} of the training'
      )
    else:
      changes[name] = value
      report(f'{datetime.now()}: --{name}={value}, as in the training')
  return dataclasses.replace(config.data, **changes)


def predictor(model: keras.Model, device: str) -> Predict:
  """Makes the traced function that scores a batch.

  Args:
    model: maps images to logits [b, classes], or to a list of these logits and
      the logits of auxiliary heads.
    device: name of the device to run on.

  Returns:
    A `tf.function` of (sums float64 [metrics], images [b, ...], labels int32
    [b]). It returns the sums plus the batch's sum of each metric of
    `metrics.EVALUATION`.
  """

  @tracing.function(reduce_retracing=True)
  def add(sums: tf.Tensor, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    with tf.device(device):
      logits = nets.select_logits(model(images, training=False))
      found = [m.compute(labels, logits) for m in metrics.EVALUATION]
      # Sums of counts are exact in float64.
      values = [tf.cast(values, tf.float64) for values in found]
      return sums + tf.reduce_sum(values, axis=1)

  return add


def score_examples(
  predict: Predict,
  batches: tf.data.Dataset,
  total: int,
  batch_size: int,
  report: Callable[[str], None],
) -> dict[str, float]:
  """Scores the first examples of a data set.

  Args:
    predict: from `predictor`.
    batches: (images, labels), `batch_size` examples per batch.
    total: number of examples to score.
    batch_size: examples per batch.
    report: called with a log line every 100 batches.

  Returns:
    The mean over the examples of every metric of `metrics.EVALUATION`, by name.
  """
  number_of_batches = -(-total // batch_size)
  sums = zero_sums()
  since = time.perf_counter()
  for number, batch in enumerate(batches.take(number_of_batches), start=1):
    # Cuts the last batch if `total` is not a multiple of the batch size.
    left = total - (number - 1) * batch_size
    sums = predict(sums, *(part[:left] for part in batch))
    if number % _REPORT_BATCHES == 0:
      now = time.perf_counter()
      per_batch = (now - since) / _REPORT_BATCHES
      since = now
      report(
        f'{datetime.now()}: [{number} batches out of {number_of_batches}] '
        f'({batch_size / per_batch:.1f} examples/sec; '
        f'{per_batch:.3f} sec/batch)'
      )
  names = (m.name for m in metrics.EVALUATION)
  return dict(zip(names, (sums.numpy() / total).tolist(), strict=True))


def zero_sums() -> tf.Tensor:
  """Initial sums of a `predictor`: zeros, float64 [metrics]."""
  return tf.zeros([len(metrics.EVALUATION)], tf.float64)


def open_subset(
  data: model_options.DataOptions, net: str, subset: str, limit: int = 0
) -> tuple[tf.data.Dataset, datasets.SplitInfo]:
  """Opens a subset with the preprocessing that evaluation of a net uses.

  Args:
    data: where the data are and how to read them.
    net: name of the net.
    subset: split of the data set.
    limit: largest number of examples; 0 for all.

  Returns:
    (batches of images and labels, facts about the subset); see `datasets.load`.
  """
  return datasets.load(
    data.dataset_name,
    data.data_dir,
    subset,
    datasets.ReadOptions(
      image_size=data.image_size,
      batch_size=data.batch_size,
      training=False,
      net=net,
      preprocessing=data.preprocessing,
      labels_offset=data.labels_offset,
      corpus=data.corpus,
      limit=limit,
    ),
    data.num_classes or None,
  )


def _open_folder(path: str) -> None:
  try:
    disk.make_folder(pathlib.Path(path))
  except OSError as error:
    raise errors.ConfigError(
      f'eval_dir: expected a folder that can be written, received {path} '
      f'({error.strerror}). Choose another --eval_dir.'
    ) from error
