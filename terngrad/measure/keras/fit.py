"""Steps of Keras's own `fit`, with compression and without."""

import statistics

import keras
import numpy as np
import pandas as pd
import tensorflow as tf

from terngrad.keras import optimizer as optimizers
from terngrad.measure import timing

PLAIN = 'none'
_SIDE, _CLASSES = 28, 10


def table(codecs, devices, batch_size, rounds, steps):
  """Times fits that take turns; all are of one strategy and one model.

  Args:
    codecs: texts, as `--codec` spells them.
    devices: names, one a replica.
    batch_size: of all replicas.
    rounds: that count.
    steps: of a fit.

  Returns:
    `pandas.DataFrame`, a row a codec, `none` first: median and least
    milliseconds a step; the median, least and largest over the rounds of the
    ratio to `none` in the same round.
  """
  strategy = tf.distribute.MirroredStrategy(devices)
  data = _data(batch_size)
  jobs = {
    codec: (_job(strategy, codec, data, steps), steps)
    for codec in (PLAIN, *codecs)
  }
  seconds = timing.in_turns(jobs, rounds)
  rows = []
  for name, own in seconds.items():
    ratios = [a / b for a, b in zip(own, seconds[PLAIN], strict=True)]
    rows.append(
      {
        'codec': name,
        'ms a step': 1e3 * statistics.median(own),
        'least ms': 1e3 * min(own),
        'ratio': timing.ratio(seconds, name, PLAIN),
        'least ratio': min(ratios),
        'largest ratio': max(ratios),
        'ratio of least': min(own) / min(seconds[PLAIN]),
      }
    )
  return pd.DataFrame(rows)


def _data(batch_size):
  """The same batch for ever, so that no time is the pipeline's."""
  numbers = np.random.default_rng(0)
  images = numbers.normal(size=(batch_size, _SIDE, _SIDE, 1))
  labels = numbers.integers(0, _CLASSES, batch_size)
  return tf.data.Dataset.from_tensors(
    (images.astype(np.float32), labels)
  ).repeat()


def _job(strategy, codec, data, steps):
  """A function without arguments that fits so many steps."""
  keras.utils.set_random_seed(0)
  with strategy.scope():
    model = _model()
    optimizer = keras.optimizers.Adam()
    if codec != PLAIN:
      optimizer = optimizers.CompressedOptimizer(optimizer, codec)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
  return lambda: model.fit(
    data, steps_per_epoch=steps, shuffle=False, verbose=0
  )


def _model():
  """The net of Keras's own MNIST example."""
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
