"""Compares the evaluator's loop with a loop that only calls the model."""

import sys
from collections.abc import Sequence

import keras
import numpy as np
import pandas as pd
import tensorflow as tf

from slim.nets import factory as nets
from terngrad.codec.stages import tracing
from terngrad.measure import timing
from terngrad.training import evaluation


def measure(
  names: Sequence[str], batch: int, batches: int, classes: int, rounds: int
) -> pd.DataFrame:
  """Times both loops over the same batches, in alternation.

  Args:
    names: names of nets.
    batch: examples per batch.
    batches: batches per round.
    classes: number of classes of each net.
    rounds: rounds of timing; the median is reported.

  Returns:
    One row per net: examples per second of both loops, and the evaluator's
    speed relative to the other loop's.

  Raises:
    slim.errors.UnknownNameError: there is no such net; nothing was measured.
  """
  chosen = {name: nets.find_net(name) for name in names}
  rows = {}
  for name, net in chosen.items():
    size, channels = net.default_image_size, net.default_channels
    model = nets.build(
      name, num_classes=classes, image_size=size, channels=channels
    )
    # One batch, repeated and cached in memory, so that reading costs little.
    random = np.random.default_rng(0)
    images = random.standard_normal([batch, size, size, channels], np.float32)
    labels = random.integers(classes, size=batch, dtype=np.int32)
    one = tf.data.Dataset.from_tensors((images, labels))
    rows[name] = _compare(model, one.repeat(batches).cache(), batch, rounds)
  table = pd.DataFrame.from_dict(rows, orient='index')
  return table.rename_axis('net').round(3)


def _report(line: str) -> None:
  sys.stderr.write(line)


def _compare(
  model: keras.Model, examples: tf.data.Dataset, batch: int, rounds: int
) -> dict[str, float]:
  """Returns the table row of a model."""
  predict = evaluation.predictor(model, '')
  bare = tracing.function(lambda images: model(images, training=False))
  total = batch * int(examples.cardinality())

  def score() -> None:
    evaluation.score_examples(predict, examples, total, batch, _report)

  def only_call() -> None:
    for images, _ in examples:
      bare(images)

  seconds = timing.alternate(
    {'evaluator': (score, total), 'bare model': (only_call, total)}, rounds
  )
  speeds = 1 / pd.DataFrame(seconds).median()
  return {
    **speeds.add_suffix(', images/s'),
    'evaluator to bare': timing.ratio(seconds, 'bare model', 'evaluator'),
  }
