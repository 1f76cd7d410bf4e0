"""Fine-tunes a net of keras.applications with four virtual workers.

    python examples/fine_tune.py [WEIGHTS] [EPOCHS]

WEIGHTS is `imagenet` (Keras downloads them), a file, or `none`. If they are not
available, the program prints that and continues with random weights. The images
are synthetic: discs and squares in three colours.
"""

import sys

import keras
import numpy as np

import terngrad.keras

SIZE, WORKERS = 96, 4
COLOURS = 'red', 'green', 'blue'


def images(count, seed):
  """(float32 [count, SIZE, SIZE, 3] in [-1, 1], int64 [count])."""
  numbers = np.random.default_rng(seed)
  labels = numbers.integers(0, len(COLOURS), count)
  y, x = np.mgrid[:SIZE, :SIZE]
  found = numbers.normal(0, 0.1, [count, SIZE, SIZE, 3])
  for image, label in zip(found, labels, strict=True):
    row, column = numbers.integers(SIZE // 4, 3 * SIZE // 4, 2)
    radius = numbers.integers(SIZE // 4, SIZE // 2)
    far = np.hypot if numbers.integers(2) else np.maximum
    image[far(abs(y - row), abs(x - column)) < radius, label] += 0.8
  return np.clip(found, -1, 1).astype('float32'), labels


def base(weights, examples):
  """MobileNetV2 without its head."""
  options = {'include_top': False, 'pooling': 'avg', 'alpha': 0.35}
  options['input_shape'] = SIZE, SIZE, 3
  try:
    if weights != 'none':
      return keras.applications.MobileNetV2(weights=weights, **options)
  except Exception as error:
    print(f'No {weights} weights: {error}\nUsing random weights.')
  net = keras.applications.MobileNetV2(weights=None, **options)
  # Statistics for the normalization of random layers, from examples.
  for momentum in (0.0, 0.9):
    for layer in net.layers:
      layer.momentum = momentum
    net(examples, training=True)
  return net


def main(weights='imagenet', epochs='3'):
  keras.utils.set_random_seed(0)
  train, test = images(240, seed=1), images(120, seed=2)
  net = base(weights, train[0])
  # Frozen: its gradients are neither computed nor sent.
  net.trainable = False
  model = keras.Sequential([net, keras.layers.Dense(len(COLOURS))])
  loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model.compile(keras.optimizers.Adam(0.01), loss, metrics=['accuracy'])
  figures = terngrad.keras.CompressionMetrics()

  terngrad.keras.virtual_workers(model, 'ternary', WORKERS)
  model.fit(*train, 24, int(epochs), verbose=2, callbacks=[figures])
  print(f'head: test accuracy {model.evaluate(*test, verbose=0)[1]:.1%}')

  # Then its last block too, more slowly. `compile` needs a new call.
  net.trainable = True
  for layer in net.layers[:-4]:
    layer.trainable = False
  model.compile(keras.optimizers.Adam(0.001), loss, metrics=['accuracy'])
  terngrad.keras.virtual_workers(model, 'error_feedback+sign', WORKERS)
  model.fit(*train, 24, int(epochs), verbose=2, callbacks=[figures])
  print(f'last block: test accuracy {model.evaluate(*test, verbose=0)[1]:.1%}')


if __name__ == '__main__':
  main(*sys.argv[1:])
