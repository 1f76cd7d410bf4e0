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
from terngrad.codec.stages import tracing
from terngrad.config import options
from terngrad.config import training as configs
from terngrad.machine import determinism
from terngrad.measure import launches
from terngrad.measure import timing
from terngrad.step import step as steps_lib
from terngrad.training import assembly
from terngrad.training import run as runs

# A function that launches a step.
Step = Callable[[], object]
TOWERS, KERAS = 'float32 towers', 'plain Keras'
KERAS_COMPILED = 'plain Keras, XLA'
KERAS_KINDS = KERAS, KERAS_COMPILED
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
  averages: bool = False,
) -> StepTimes:
  """Times the steps in alternation, on constant images on the device.

  All steps of a kind are launched before the device is waited for. The step of
  Keras is the faster one of with and without XLA. All steps have the op
  determinism of the configuration.

  Args:
    config: configuration with the codec, in benchmark mode.
    nodes: numbers of nodes to measure the codec with.
    rounds: rounds of timing; the median is reported.
    steps: steps of each kind per round.
    recompute: whether to also measure `--optimize_gradient_memory`.
    averages: whether Keras also keeps moving averages of the parameters.

  Raises:
    errors.ConfigError: the configuration is invalid.
  """
  with determinism.require(config.devices.deterministic):
    built = {
      kind: build()
      for kind, build in kinds(config, nodes, recompute, averages).items()
    }
    slower = max(KERAS_KINDS, key=lambda kind: _seconds(built[kind]))
    jobs = {
      kind: (functools.partial(repeat, step, steps), steps)
      for kind, step in built.items()
      if kind != slower
    }
    seconds = pd.DataFrame(timing.alternate(jobs, rounds))
  few, many = min(nodes), max(nodes)
  extra = None
  if few < many:
    coded = [seconds[coded_kind(config.codes.codec, n)] for n in (many, few)]
    extra = float((coded[0] - coded[1]).median()) / (many - few)
  return StepTimes(compare(seconds), few, extra)


def compare(seconds: pd.DataFrame) -> pd.DataFrame:
  """Returns milliseconds and ratios within rounds, one row for each kind.

  Ratios are to float32 replicas and to Keras, the faster of its kinds.

  Args:
    seconds: seconds a step, a column for each kind and a row for each round.
  """
  medians = seconds.median()
  keras_kinds = [kind for kind in KERAS_KINDS if kind in seconds]
  bases = {TOWERS: TOWERS} if TOWERS in seconds else {}
  if keras_kinds:
    bases[KERAS] = medians[keras_kinds].idxmin()
  ratios = {
    f'to {name}': seconds.div(seconds[base], axis=0).median()
    for name, base in bases.items()
  }
  return pd.DataFrame({'milliseconds': 1e3 * medians, **ratios}).round(3)


def coded_kind(codec: str, nodes: int) -> str:
  """Returns the name of the steps with a codec."""
  return f'{codec}, {nodes} nodes'


def kinds(
  config: configs.TrainConfig,
  nodes: Sequence[int],
  recompute: bool = False,
  averages: bool = False,
) -> dict[str, Callable[[], Step]]:
  """Returns the builders of all kinds of steps; arguments as for `measure`.

  Build them in this order: towers split the CPU, which TensorFlow allows only
  once.
  """
  count = config.devices.count
  plain = options.replace(config, codec='identity', num_nodes=count)
  built: dict[str, Callable[[], Step]] = {
    TOWERS: functools.partial(_tower_step, plain)
  }
  if recompute:
    changed = options.replace(plain, optimize_gradient_memory=True)
    built[_RECOMPUTED] = functools.partial(_tower_step, changed)
  for n in nodes:
    built[coded_kind(config.codes.codec, n)] = functools.partial(
      _tower_step, options.replace(config, num_nodes=n)
    )
  alone = options.replace(
    plain, num_gpus=1, devices=config.devices.devices[:1], num_nodes=-1
  )
  for kind in KERAS_KINDS:
    built[kind] = functools.partial(
      _keras_step, alone, kind == KERAS_COMPILED, averages
    )
  return built


def _seconds(step: Step) -> float:
  """Times a step; infinity if XLA has no deterministic operation for it."""
  try:
    return timing.time_once(lambda: repeat(step, 1))
  except tf.errors.UnimplementedError:
    return math.inf


def repeat(step: Step, times: int) -> None:
  """Launches steps, then waits for the last of them."""
  for _ in range(times):
    step()
  launches.wait()


def _tower_step(config: configs.TrainConfig) -> Step:
  """Returns a function that launches one step."""
  config.validate()
  run = assembly.assemble(config)
  images, labels = _batch(run)
  counter = itertools.count()
  return lambda: run.coded_step.take(
    images,
    labels,
    *steps_lib.host_numbers(next(counter), 0.001, 0.999),
  )


def _batch(run: runs.Run) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns a batch: floats on the first device, integers on the host.

  Functions of TensorFlow take integers from the host's memory.
  """
  images, labels = next(run.batches(0))
  if images.dtype.is_integer:
    return images, labels
  with tf.device(run.replicas[0].device):
    return tf.identity(images), labels


def _keras_step(
  config: configs.TrainConfig, compiled: bool, averages: bool
) -> Step:
  """Returns Keras's train step with momentum SGD."""
  run = assembly.assemble(config)
  images, labels = _batch(run)
  device = run.replicas[0].device
  with tf.device(device):
    model = nets.build(
      config.model.net,
      num_classes=run.layout.num_classes,
      image_size=config.data.image_size,
      channels=images.shape[-1],
    )
    # Keras's step is compiled as a whole, and takes integers from the device.
    batch = tf.identity(images[0]), tf.identity(labels[0])
  return keras_step(device, model, *batch, compiled, averages)


def keras_step(
  device: str,
  model: keras.Model,
  inputs: tf.Tensor,
  labels: tf.Tensor,
  compiled: bool,
  averages: bool = False,
) -> Step:
  """Returns a function that launches Keras's train step on one batch.

  It is the function that `fit` traces, without an iterator, so the batch stays
  on the device.

  Args:
    device: name of the device.
    model: returns logits; it is compiled here, with SGD and momentum 0.9.
    inputs: a batch of the model's inputs, on the device.
    labels: int32 [b], one for each row of logits.
    compiled: Keras's `jit_compile`.
    averages: Keras's `use_ema`.
  """
  model.compile(
    keras.optimizers.SGD(0.001, momentum=0.9, use_ema=averages),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    jit_compile=compiled,
  )
  with tf.device(device):
    model.optimizer.build(model.trainable_variables)
  train = tracing.function(model.train_step, jit_compile=compiled)

  def step() -> object:
    with tf.device(device):
      return train((inputs, labels))

  return step
