"""Times steps of Keras's `fit`, with compression and without."""

import hashlib
import os
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import pandas as pd
import tensorflow as tf

from slim.nets import gpt
from terngrad import errors
from terngrad.codec.stages import tracing
from terngrad.keras import multi_worker
from terngrad.keras import optimizer as optimizers
from terngrad.measure import timing
from terngrad.measure.processes import exchanges

PLAIN = 'none'
EXAMPLE = 'keras_mnist'
_SIDE, _CLASSES = 28, 10


class FitSettings(NamedTuple):
  """The settings of a measurement.

  Attributes:
    net: `EXAMPLE`, or a name in `measure.processes.exchanges.NETS`.
    optimizer: a name that `keras.optimizers.get` takes.
    batch_size: examples per step, over all replicas.
    rounds: number of timed rounds.
    steps: steps per fit.
    interface: network interface whose bytes are counted; '' for all except the
      loopback.
  """

  net: str = EXAMPLE
  optimizer: str = 'adam'
  batch_size: int = 128
  rounds: int = 7
  steps: int = 40
  interface: str = ''


def table(
  codecs: Sequence[str], devices: Sequence[str], settings: FitSettings
) -> pd.DataFrame:
  """Times fits in alternation, with one strategy and one net.

  If TF_CONFIG names other processes, they are the replicas. Each process calls
  this function with the same arguments, before anything else uses TensorFlow.

  Args:
    codecs: codecs in the syntax of `--codec`.
    devices: device names, one per replica; ignored with other processes.
    settings: settings of the measurement.

  Returns:
    One row per codec, `none` first: median and least milliseconds per step;
    over the rounds, the median, least and largest ratio to `none` in the same
    round; median megabytes that this host sent per step; whether the trainable
    weights and the optimizer's variables are bit-identical on all replicas.
  """
  strategy = _strategy(devices)
  fits = {codec: _Fit(strategy, codec, settings) for codec in (PLAIN, *codecs)}
  jobs = {codec: (fit, settings.steps) for codec, fit in fits.items()}
  seconds = pd.DataFrame(timing.alternate(jobs, settings.rounds))
  ratios = seconds.div(seconds[PLAIN], axis=0)
  least = seconds.min()
  sent = {codec: statistics.median(fit.sent) for codec, fit in fits.items()}
  columns = {
    'ms a step': 1e3 * seconds.median(),
    'least ms': 1e3 * least,
    'ratio': ratios.median(),
    'least ratio': ratios.min(),
    'largest ratio': ratios.max(),
    'ratio of least': least / least[PLAIN],
    'MB sent': pd.Series(sent) / settings.steps / 1e6,
    'equal': {codec: fit.replicas_are_equal() for codec, fit in fits.items()},
  }
  return pd.DataFrame(columns).rename_axis('codec').reset_index()


class _Fit:
  """Fits a model for some steps on each call.

  Attributes:
    sent: bytes sent by each call.
  """

  def __init__(
    self, strategy: tf.distribute.Strategy, codec: str, settings: FitSettings
  ) -> None:
    keras.utils.set_random_seed(0)
    self._strategy, self._settings = strategy, settings
    self.sent: list[int] = []
    with strategy.scope():
      self._model = build_model(settings.net)
      optimizer = make_optimizer(settings.optimizer)
      if codec != PLAIN:
        optimizer = optimizers.CompressedOptimizer(optimizer, codec)
      loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
      self._model.compile(optimizer, loss)
    self._data = repeat_batch(self._model, settings.batch_size)

  def __call__(self) -> None:
    _, before = exchanges.interface_bytes(self._settings.interface)
    self._model.fit(
      self._data, steps_per_epoch=self._settings.steps, shuffle=False, verbose=0
    )
    _, after = exchanges.interface_bytes(self._settings.interface)
    self.sent.append(after - before)

  def replicas_are_equal(self) -> bool:
    """Returns whether all replicas have bit-equal weights and optimizers."""
    model, copies = self._model, self._strategy.experimental_local_results
    variables = (*model.trainable_variables, *model.optimizer.variables)
    digest, equal = hashlib.sha256(), True
    for variable in variables:
      local = [copy.numpy().tobytes() for copy in copies(variable.value)]
      equal = equal and len(set(local)) == 1
      digest.update(local[0])
    row = [int(equal), *np.frombuffer(digest.digest(), np.int64)]
    rows = _gather_rows(self._strategy, tf.constant([row], tf.int64))
    return bool(rows[:, 0].all() and (rows == rows[0]).all())


def make_optimizer(name: str) -> keras.Optimizer:
  """Creates a Keras optimizer with its default arguments."""
  try:
    return keras.optimizers.get(name)
  except (ValueError, KeyError, TypeError) as error:
    raise errors.ConfigError(
      'optimizer: expected a name that keras.optimizers.get takes, such as '
      f'adam or sgd, received {name!r}. Correct --optimizer.'
    ) from error


def _strategy(devices: Sequence[str]) -> tf.distribute.Strategy:
  """Returns a strategy over TF_CONFIG's processes, or over local devices."""
  if not os.environ.get('TF_CONFIG'):
    return tf.distribute.MirroredStrategy(devices)
  strategy = tf.distribute.MultiWorkerMirroredStrategy()
  multi_worker.repair_multi_worker()
  return strategy


def _gather_rows(
  strategy: tf.distribute.Strategy, row: tf.Tensor
) -> np.ndarray:
  """Gathers `row` of the replicas of all processes, one row per replica."""

  @tracing.function
  def gather() -> tf.Tensor:
    return strategy.run(
      lambda: tf.distribute.get_replica_context().all_gather(row, axis=0)
    )

  return strategy.experimental_local_results(gather())[0].numpy()


def repeat_batch(model: keras.Model, batch_size: int) -> tf.data.Dataset:
  """Repeats one batch forever, so that the input pipeline costs nothing.

  Args:
    model: a classifier of images, or a language model from `slim.nets`.
    batch_size: number of images, or of texts.
  """
  numbers = np.random.default_rng(0)
  inputs, classes = model.inputs[0], model.outputs[0].shape[-1]
  shape: tuple[int, ...]
  if inputs.dtype == 'int32':
    shape = batch_size, gpt.SEQUENCE_LENGTH + 1
    tokens = numbers.integers(0, classes, shape, np.int32)
    examples, labels = tokens[:, :-1], tokens[:, 1:]
  else:
    shape = batch_size, *inputs.shape[1:]
    examples = numbers.normal(size=shape).astype(np.float32)
    labels = numbers.integers(0, classes, batch_size)
  options = tf.data.Options()
  options.experimental_distribute.auto_shard_policy = (
    tf.data.experimental.AutoShardPolicy.OFF
  )
  batches = tf.data.Dataset.from_tensors((examples, labels))
  return batches.repeat().with_options(options)


def build_model(net: str) -> keras.Model:
  """Builds a net by name, or the net of Keras's MNIST example."""
  if net != EXAMPLE:
    model: keras.Model = exchanges.subject(net, real=True).model
    # Drop the auxiliary logits of nets that have them.
    return keras.Model(model.inputs, model.outputs[0])
  return keras.Sequential(
    [
      keras.Input((_SIDE, _SIDE, 1)),
      keras.layers.Conv2D(32, 3, activation='relu'),
      keras.layers.MaxPooling2D(),
      keras.layers.Conv2D(64, 3, activation='relu'),
      keras.layers.MaxPooling2D(),
      keras.layers.Flatten(),
      keras.layers.Dropout(0.5),
      keras.layers.Dense(_CLASSES),
    ]
  )
