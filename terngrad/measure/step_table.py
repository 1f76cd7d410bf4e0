"""Compares steps of Keras, of towers, and of towers with a codec."""

import functools
import itertools
import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import keras
import pandas as pd
import tensorflow as tf

from slim.nets import factory as nets
from terngrad.cluster import determinism
from terngrad.config import options
from terngrad.config import training as configs
from terngrad.measure import timing
from terngrad.training import assembly
from terngrad.training import run as run_lib

_TOWERS, _KERAS = 'float32 towers', 'plain Keras'
_RECOMPUTED = 'float32 towers, recomputed'


class StepTimes(NamedTuple):
  """Measured step times.

  Attributes:
    table: one row for each kind of step.
    fewest: the smallest number of nodes measured with the codec.
    node_seconds: seconds that each further node adds to a step; None if the
      codec was measured with a single number of nodes.
  """

  table: pd.DataFrame
  fewest: int
  node_seconds: float | None


def measure(
  config: configs.TrainConfig,
  nodes: Sequence[int],
  rounds: int,
  steps: int,
  recompute: bool = False,
) -> StepTimes:
  """Times the steps in alternation, on constant images on the device.

  The step of Keras is the faster one of with and without XLA. All steps have
  the op determinism of the configuration.

  Args:
    config: configuration with the codec, in benchmark mode.
    nodes: numbers of nodes to measure the codec with.
    rounds: rounds of timing; the median is reported.
    steps: steps of each kind per round.
    recompute: whether to also measure `--optimize_gradient_memory`.

  Raises:
    errors.ConfigError: the configuration is invalid.
  """
  with determinism.require(config.devices.deterministic):
    return _measure(config, nodes, (rounds, steps), recompute)


def _measure(
  config: configs.TrainConfig,
  nodes: Sequence[int],
  counts: tuple[int, int],
  recompute: bool,
) -> StepTimes:
  rounds, steps = counts
  plain = options.replace(
    config, codec='identity', num_nodes=config.devices.num_gpus
  )
  coded = {n: f'{config.codes.codec}, {n} nodes' for n in nodes}
  kinds = {_TOWERS: _tower_step(plain)}
  if recompute:
    changed = options.replace(plain, optimize_gradient_memory=True)
    kinds[_RECOMPUTED] = _tower_step(changed)
  for n, kind in coded.items():
    kinds[kind] = _tower_step(options.replace(config, num_nodes=n))
  # Keras comes last: towers split the CPU, which TensorFlow allows only once.
  alone = options.replace(plain, num_gpus=1, num_nodes=-1)
  kinds[_KERAS] = min(
    (_keras_step(alone, jit_compile) for jit_compile in (False, True)),
    key=_seconds,
  )
  jobs = {
    kind: (functools.partial(_repeat, step, steps), steps)
    for kind, step in kinds.items()
  }
  seconds = pd.DataFrame(timing.alternate(jobs, rounds))
  ratios = {
    f'to {base}': seconds.div(seconds[base], axis=0).median()
    for base in (_TOWERS, _KERAS)
  }
  table = pd.DataFrame({'milliseconds': 1e3 * seconds.median(), **ratios})
  few, many = min(nodes), max(nodes)
  extra = None
  if few < many:
    difference = seconds[coded[many]] - seconds[coded[few]]
    extra = float(difference.median()) / (many - few)
  return StepTimes(table.round(3), few, extra)


def _tower_step(config: configs.TrainConfig) -> Callable[[], None]:
  """Returns a function that runs one step and waits for it."""
  config.validate()
  run = assembly.assemble(config)
  images, labels = _batch_on_device(run)
  counter = itertools.count()

  def step() -> None:
    run.coded_step.take(
      images,
      labels,
      tf.constant(next(counter), tf.int64),
      tf.constant(0.001),
      tf.constant(0.999),
    ).entropy.numpy()

  return step


def _batch_on_device(run: run_lib.Run) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns the images and labels of a batch, on the first device."""
  with tf.device(run.exchange.devices[0]):
    images, labels = map(tf.identity, next(run.batches(0)))
  return images, labels


def _keras_step(
  config: configs.TrainConfig, jit_compile: bool
) -> Callable[[], None]:
  """Returns Keras's train step: momentum SGD, no moving averages."""
  run = assembly.assemble(config)
  images, labels = _batch_on_device(run)
  model = nets.build(
    config.model.net,
    num_classes=run.layout.num_classes,
    image_size=config.data.image_size,
    channels=images.shape[-1],
  )
  model.compile(
    keras.optimizers.SGD(0.001, momentum=0.9),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  # `fit` calls the same function, but copies each batch to the device.
  model.optimizer.build(model.trainable_variables)
  step = tf.function(model.train_step, jit_compile=jit_compile, autograph=False)
  return lambda: step((images[0], labels[0]))['loss'].numpy()


def _seconds(step: Callable[[], None]) -> float:
  """Times a step; infinity if XLA has no deterministic operation for it."""
  try:
    return timing.time_once(step)
  except tf.errors.UnimplementedError:
    return math.inf


def _repeat(step: Callable[[], None], times: int) -> None:
  for _ in range(times):
    step()
