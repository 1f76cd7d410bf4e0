"""The evaluator's loop beside one that only calls the model."""

import statistics
import sys

import numpy as np
import pandas as pd
import tensorflow as tf

from slim.nets import factory as nets
from terngrad.measure import timing
from terngrad.training import evaluation


def measure(names, batch, batches, classes, rounds):
  """Times both loops over the same batches, in turns.

  Args:
    names: of nets.
    batch: examples a batch.
    batches: in a round.
    classes: of each net.
    rounds: to take the median of.

  Returns:
    `pandas.DataFrame`, a row a net: examples a second of both loops, and the
    evaluator's speed over the other's.

  Raises:
    slim.errors.UnknownNameError: there is no such net; nothing was measured.
  """
  chosen = {name: nets.of(name) for name in names}
  rows = []
  for name, net in chosen.items():
    size, channels = net.default_image_size, net.default_channels
    model = nets.build(
      name, num_classes=classes, image_size=size, channels=channels
    )
    examples = _examples([batch, size, size, channels], classes, batches)
    rows.append({'net': name} | _compare(model, examples, batch, rounds))
  return pd.DataFrame(rows).set_index('net').round(3)


def _compare(model, examples, batch, rounds):
  """The row of a model, as a dict."""
  predict = evaluation.predictor(model, '')
  bare = tf.function(lambda images: model(images, training=False))
  total = batch * int(examples.cardinality())

  def score():
    evaluation.count(predict, examples, total, batch, sys.stderr.write)

  def only_call():
    for images, _ in examples:
      bare(images)

  seconds = timing.in_turns(
    {'evaluator': (score, total), 'bare model': (only_call, total)}, rounds
  )
  speeds = {
    f'{name}, images/s': 1 / statistics.median(each)
    for name, each in seconds.items()
  }
  ratio = timing.ratio(seconds, 'bare model', 'evaluator')
  return speeds | {'evaluator to bare': ratio}


def _examples(shape, classes, count):
  """Random images and labels, cached in memory as they are delivered."""
  random = np.random.default_rng(0)
  images = random.standard_normal(shape, np.float32)
  labels = random.integers(classes, size=shape[0], dtype=np.int32)
  batch = tf.data.Dataset.from_tensors((images, labels))
  return batch.repeat(count).cache()
