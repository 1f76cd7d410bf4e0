r"""Measures evaluation against the bare model, as ratios in one run.

  python -m terngrad.bin.measure_eval --nets=lenet,cifar10_alexnet,alexnet

The evaluator's own loop and a loop that only calls the traced model take turns
over the same batches, which lie in memory. Speed is examples a second; 1 means
that scoring costs nothing beside the net.
"""

import statistics
import sys

import numpy as np
import pandas as pd
import tensorflow as tf
from absl import app
from absl import flags

from slim import errors
from slim.nets import factory as nets
from terngrad.measure import timing
from terngrad.training import evaluation

NETS = flags.DEFINE_list(
  'nets', ['lenet', 'cifar10_alexnet', 'alexnet'], 'Networks.'
)
NUM_CLASSES = flags.DEFINE_integer('num_classes', 10, 'Classes of each.')
BATCH_SIZE = flags.DEFINE_integer(
  'batch_size', 32, 'Examples a batch.', lower_bound=1
)
BATCHES = flags.DEFINE_integer('batches', 4, 'Batches to score.', lower_bound=1)
ROUNDS = flags.DEFINE_integer(
  'rounds', 9, 'Rounds to take the median of.', lower_bound=1
)


def main(arguments):
  """Measures and prints; returns the exit code."""
  if len(arguments) > 1:
    raise app.UsageError(f'Expected flags only, received {arguments[1]!r}.')
  try:
    chosen = [errors.lookup(nets.NETS, name, 'net') for name in NETS.value]
  except errors.DataError as error:
    sys.stderr.write(f'error: {error}\n')
    return 2
  rows = [
    _compare(name, net) for name, net in zip(NETS.value, chosen, strict=True)
  ]
  print(
    f'Batches of {BATCH_SIZE.value}, medians of {ROUNDS.value} rounds of '
    f'{BATCHES.value} batches'
  )
  print(pd.DataFrame(rows).set_index('net').round(3).to_string())
  return 0


def _compare(name, net):
  """The row of a net, as a dict."""
  size = net.default_image_size
  model = nets.build(
    name,
    num_classes=NUM_CLASSES.value,
    image_size=size,
    channels=net.default_channels,
  )
  batches = _batches([size, size, net.default_channels])
  predict = evaluation.predictor(model, '')
  bare = tf.function(lambda images: model(images, training=False))
  total = BATCHES.value * BATCH_SIZE.value

  def score():
    evaluation.count(
      predict, batches, total, BATCH_SIZE.value, sys.stderr.write
    )

  def only_call():
    for images, _ in batches:
      bare(images)

  times = timing.in_turns(
    {
      'evaluator': (score, total),
      'bare model': (only_call, total),
    },
    ROUNDS.value,
  )
  speeds = {
    f'{k}, images/s': 1 / statistics.median(v) for k, v in times.items()
  }
  return {
    'net': name,
    **speeds,
    'evaluator to bare': timing.ratio(times, 'bare model', 'evaluator'),
  }


def _batches(shape):
  """Random images and labels, cached in memory as they are delivered."""
  random = np.random.default_rng(0)
  size = BATCH_SIZE.value
  images = random.standard_normal([size, *shape], np.float32)
  labels = random.integers(NUM_CLASSES.value, size=size, dtype=np.int32)
  batch = tf.data.Dataset.from_tensors((images, labels))
  return batch.repeat(BATCHES.value).cache()


if __name__ == '__main__':
  sys.exit(app.run(main))
