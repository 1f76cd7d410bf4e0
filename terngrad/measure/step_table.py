"""Training steps beside each other: Keras's, towers, and towers with a code."""

import itertools
import statistics
from typing import NamedTuple

import keras
import pandas as pd
import tensorflow as tf

from slim.nets import factory as nets
from terngrad.config import options
from terngrad.measure import timing
from terngrad.training import assembly

_TOWERS, _KERAS = 'float32 towers', 'plain Keras'
_RECOMPUTED = 'float32 towers, recomputed'


class Measured(NamedTuple):
  """What steps take.

  Attributes:
    table: `pandas.DataFrame`, a row for each kind of step.
    fewest: nodes, the fewest with which the code was measured.
    node_seconds: what each node after these adds to a step; None where the code
      was measured with one number of nodes.
  """

  table: pd.DataFrame
  fewest: int
  node_seconds: float | None


def measure(config, nodes, rounds, steps, recompute=False):
  """Times steps in turns, on constant images.

  Args:
    config: `training.TrainConfig` of the code, in benchmark mode.
    nodes: list of int, numbers of nodes to measure the code with.
    rounds: to take the median of.
    steps: of each kind in a round.
    recompute: whether to measure `--optimize_gradient_memory` as well.

  Returns:
    `Measured`.

  Raises:
    errors.ConfigError: the configuration cannot be.
  """
  plain = options.replace(
    config, codec='identity', num_nodes=config.devices.num_gpus
  )
  coded = {
    n: (
      f'{config.codes.codec}, {n} nodes',
      _tower_step(options.replace(config, num_nodes=n)),
    )
    for n in nodes
  }
  recomputed = {}
  if recompute:
    changed = options.replace(plain, optimize_gradient_memory=True)
    recomputed[_RECOMPUTED] = _tower_step(changed)
  kinds = {
    _TOWERS: _tower_step(plain),
    **recomputed,
    **dict(coded.values()),
    # Last: towers split the CPU, which TensorFlow allows only once.
    _KERAS: _keras_step(options.replace(plain, num_gpus=1, num_nodes=-1)),
  }
  seconds = timing.in_turns(
    {kind: (_repeated(step, steps), steps) for kind, step in kinds.items()},
    rounds,
  )
  few, many = min(nodes), max(nodes)
  extra = None
  if few < many:
    pairs = zip(seconds[coded[few][0]], seconds[coded[many][0]], strict=True)
    extra = statistics.median(b - a for a, b in pairs) / (many - few)
  return Measured(_table(seconds), few, extra)


def _table(seconds):
  return pd.DataFrame(
    {
      'milliseconds': {
        kind: 1e3 * statistics.median(each) for kind, each in seconds.items()
      },
      **{
        f'to {base}': {
          kind: timing.ratio(seconds, kind, base) for kind in seconds
        }
        for base in (_TOWERS, _KERAS)
      },
    }
  ).round(3)


def _tower_step(config):
  """A function without arguments that takes one step and waits for it."""
  config.validate()
  run = assembly.assemble(config)
  images, labels = next(run.batches(0))
  counter = itertools.count()

  def step():
    run.coded_step.take(
      images,
      labels,
      tf.constant(next(counter), tf.int64),
      tf.constant(0.001),
      tf.constant(0.999),
    ).entropy.numpy()

  return step


def _keras_step(config):
  """The same for Keras's own train step: momentum SGD, no moving averages."""
  run = assembly.assemble(config)
  images, labels = next(run.batches(0))
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
  model.make_train_function()
  batches = iter(tf.data.Dataset.from_tensors((images[0], labels[0])).repeat())

  def step():
    model.train_function(batches)['loss'].numpy()

  return step


def _repeated(step, times):
  def steps():
    for _ in range(times):
      step()

  return steps
