"""Classifies sentences with an embedding, on two replicas.

    python examples/text_embedding.py [EPOCHS]

The sentences are synthetic: a few of a thousand words are glad or sad. The
gradient of the embedding is sparse and is sent uncompressed; the log says so.
All other gradients are compressed with error feedback. A stopped `fit`
continues from its backup.
"""

import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

import terngrad.keras

WORDS, LENGTH, MOODY = 1000, 40, 50


def sentences(count, seed):
  """(int32 [count, LENGTH], word indices; int32 [count], 1 for glad)."""
  numbers = np.random.default_rng(seed)
  moods = numbers.integers(0, 2, count)
  words = numbers.integers(2 * MOODY, WORDS, [count, LENGTH])
  positions = numbers.integers(0, LENGTH, [count, 4])
  shown = numbers.integers(0, MOODY, [count, 4]) + MOODY * moods[:, None]
  np.put_along_axis(words, positions, shown, axis=1)
  return words.astype('int32'), moods.astype('int32')


def main(epochs='3'):
  (cpu,) = tf.config.list_physical_devices('CPU')
  two = [tf.config.LogicalDeviceConfiguration()] * 2
  tf.config.set_logical_device_configuration(cpu, two)
  strategy = tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1'])
  keras.utils.set_random_seed(0)
  with strategy.scope():
    model = keras.Sequential(
      [
        keras.Input((LENGTH,), dtype='int32'),
        keras.layers.Embedding(WORDS, 16),
        keras.layers.Bidirectional(keras.layers.GRU(16)),
        keras.layers.Dense(1, activation='sigmoid'),
      ]
    )
    optimizer = terngrad.keras.CompressedOptimizer(
      keras.optimizers.Adam(0.01),
      # Matrices with error feedback, vectors uncompressed.
      {'bias': 'identity', '': 'error_feedback+topk:ratio=0.05'},
    )
    model.compile(optimizer, 'binary_crossentropy', metrics=['accuracy'])
  with tempfile.TemporaryDirectory() as folder:
    model.fit(
      *sentences(2000, seed=1),
      batch_size=100,
      epochs=int(epochs),
      callbacks=[
        terngrad.keras.CompressionMetrics(),
        keras.callbacks.BackupAndRestore(folder),
      ],
      verbose=2,
    )
  _, accuracy = model.evaluate(*sentences(1000, seed=2), verbose=0)
  print(f'test accuracy {accuracy:.1%}')


if __name__ == '__main__':
  main(*sys.argv[1:])
