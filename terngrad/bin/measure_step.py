r"""Measures training steps, as ratios in one run.

  python -m terngrad.bin.measure_step --net=lenet --batch_size=64

Three kinds of step, on constant images: plain Keras on one device; float32
towers; towers with a gradient code. They take turns, round by round, and a
ratio is the median over the rounds of the ratios within a round, so that a
machine whose speed wanders moves both sides. Further nodes are measured at the
same total batch.
"""

import itertools
import os
import statistics
import sys

import keras
import pandas as pd
import tensorflow as tf
from absl import app
from absl import flags

from slim.nets import factory as nets
from terngrad import errors
from terngrad.config import config as configs
from terngrad.measure import timing
from terngrad.training import assembly

NET = flags.DEFINE_string('net', 'lenet', 'Network.')
IMAGE_SIZE = flags.DEFINE_integer('image_size', 28, 'Height and width.')
DATASET_NAME = flags.DEFINE_string('dataset_name', 'mnist', 'Sets the classes.')
BATCH_SIZE = flags.DEFINE_integer('batch_size', 64, 'Examples a step.')
NUM_GPUS = flags.DEFINE_integer('num_gpus', 2, 'Devices with a tower each.')
CODEC = flags.DEFINE_string('codec', 'ternary', 'See mnist_train --help.')
NODES = flags.DEFINE_list(
  'nodes', ['2', '4', '8'], 'Numbers of nodes to measure the code with.'
)
ROUNDS = flags.DEFINE_integer('rounds', 15, 'Rounds to take the median of.')
STEPS = flags.DEFINE_integer('steps', 10, 'Steps of each kind a round.')
OUTPUT = flags.DEFINE_string('output', '', 'Folder for measure_step.csv.')


def main(arguments):
  """Measures and prints; returns the exit code."""
  if len(arguments) > 1:
    raise app.UsageError(f'Expected flags only, received {arguments[1]!r}.')
  try:
    _compare()
  except errors.ConfigError as error:
    sys.stderr.write(f'error: {error}\n')
    return 2
  return 0


def _compare():
  devices = NUM_GPUS.value
  kinds = {
    # Towers first: they split the CPU, which TensorFlow allows only once.
    'float32 towers': _tower_step('identity', devices),
    **{
      f'{CODEC.value}, {nodes} nodes': _tower_step(CODEC.value, int(nodes))
      for nodes in NODES.value
    },
    'plain Keras': _keras_step(),
  }
  times = timing.in_turns(
    {kind: (_repeat(step), STEPS.value) for kind, step in kinds.items()},
    ROUNDS.value,
  )
  table = pd.DataFrame(
    {
      'milliseconds': {k: 1e3 * statistics.median(v) for k, v in times.items()},
      **{
        f'to {base}': {kind: timing.ratio(times, kind, base) for kind in times}
        for base in ('float32 towers', 'plain Keras')
      },
    }
  ).round(3)
  print(
    f'{NET.value}, batch {BATCH_SIZE.value}, {devices} devices, medians of '
    f'{ROUNDS.value} rounds of {STEPS.value} steps'
  )
  print(table.to_string())
  _print_cost_of_a_node(times)
  if OUTPUT.value:
    os.makedirs(OUTPUT.value, exist_ok=True)
    table.to_csv(os.path.join(OUTPUT.value, 'measure_step.csv'))


def _tower_step(codec, num_nodes):
  """A function without arguments that takes one step and waits for it."""
  config = configs.TrainConfig(
    dataset_name=DATASET_NAME.value,
    net=NET.value,
    image_size=IMAGE_SIZE.value,
    batch_size=BATCH_SIZE.value,
    num_gpus=NUM_GPUS.value,
    num_nodes=num_nodes,
    codec=codec,
    quantize_logits=True,
    benchmark_mode=True,
  )
  config.validate()
  run = assembly.assemble(config)
  images, labels = next(run.batches(0))
  counter = itertools.count()

  def step():
    run.coded_step(
      images,
      labels,
      tf.constant(next(counter), tf.int64),
      tf.constant(0.001),
      tf.constant(0.999),
    ).entropy.numpy()

  return step


def _keras_step():
  """The same for Keras's own train step: momentum SGD, no moving averages."""
  run_config = configs.TrainConfig(
    dataset_name=DATASET_NAME.value,
    net=NET.value,
    image_size=IMAGE_SIZE.value,
    batch_size=BATCH_SIZE.value,
    benchmark_mode=True,
  )
  run = assembly.assemble(run_config)
  images, labels = next(run.batches(0))
  model = nets.build(
    NET.value,
    num_classes=run.layout.num_classes,
    image_size=IMAGE_SIZE.value,
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


def _repeat(step):
  def steps():
    for _ in range(STEPS.value):
      step()

  return steps


def _print_cost_of_a_node(times):
  """What one more node adds, from the fewest nodes to the most."""
  counts = sorted({int(nodes) for nodes in NODES.value})
  if len(counts) < 2:
    return
  few, many = (
    times[f'{CODEC.value}, {n} nodes'] for n in counts[:: len(counts) - 1]
  )
  extra = statistics.median(b - a for a, b in zip(few, many, strict=True))
  each = 1e3 * extra / (counts[-1] - counts[0])
  print(f'Each node after the first {counts[0]} adds {each:.2f} ms a step.')


if __name__ == '__main__':
  sys.exit(app.run(main))
