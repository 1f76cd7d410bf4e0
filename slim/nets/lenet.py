"""LeNet for MNIST: two convolutions and two fully connected layers.

Two nets: `build`, of the 2017 trainers, and `build_slim`, of TF-Slim, which is
wider and has a dropout. Unlike in Caffe's LeNet, which the 2017 code cites,
convolutions are padded ('same') and followed by a relu.

References:
  LeCun et al., Gradient-Based Learning Applied to Document Recognition,
  Proceedings of the IEEE 86 (11), 1998.
"""

import functools
from typing import Any

import keras

from slim.nets.blocks import layers


def build(
  num_classes: int,
  image_size: int = 28,
  channels: int = 1,
  weight_decay: float = 0.0005,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
) -> keras.Model:
  """Builds LeNet; 1,256,080 parameters at 10 classes and 28x28x1.

  Args:
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 1.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel w, never for biases; 0 adds nothing.
    dropout_keep_prob: not used, because this net has no dropout.
    seed: kernels use seeds seed + 1, + 2, + 3 and + 5. Equal seeds give equal
      weights.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes] under any precision policy.
  """
  del dropout_keep_prob

  def kernel(stddev: float, offset: int) -> dict[str, Any]:
    # A regularizer is stateless, so one per layer costs nothing.
    return {
      'kernel_initializer': keras.initializers.TruncatedNormal(
        stddev=stddev, seed=seed + offset
      ),
      'kernel_regularizer': (
        keras.regularizers.L2(weight_decay / 2) if weight_decay else None
      ),
    }

  convolution = functools.partial(
    keras.layers.Conv2D, kernel_size=5, padding='same', activation='relu'
  )
  pool = functools.partial(keras.layers.MaxPooling2D, 2, padding='same')
  return keras.Sequential(
    [
      keras.Input((image_size, image_size, channels), name='images'),
      convolution(20, name='conv1', **kernel(0.05, 1)),
      pool(name='pool1'),
      convolution(50, name='conv2', **kernel(0.05, 2)),
      pool(name='pool2'),
      keras.layers.Flatten(name='flatten'),
      keras.layers.Dense(
        500, activation='relu', name='fc3', **kernel(0.048, 3)
      ),
      keras.layers.Dense(
        num_classes, name='logits', dtype='float32', **kernel(0.0767, 5)
      ),
    ],
    name='lenet',
  )


def build_slim(
  num_classes: int,
  image_size: int = 28,
  channels: int = 1,
  weight_decay: float = 0.0,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
) -> keras.Model:
  """Builds TF-Slim's LeNet; 3,274,634 parameters at 10 classes and 28x28x1.

  Args:
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 4.
    channels: channels of the input, >= 1.
    weight_decay: as in `build`.
    dropout_keep_prob: fraction of the units of fc3 that dropout keeps, in
      (0, 1].
    seed: kernels use seeds seed + 1 to seed + 4 in the order of the layers.

  Returns:
    A model with the input and output of `build`'s.
  """
  style = layers.Style(layers.truncated_normal(0.1), weight_decay)
  make = layers.Layers(style, seed)
  images = keras.Input((image_size, image_size, channels), name='images')
  x = (
    layers.LayerChain(images)
    .then(make.conv, 'conv1', 32, 5)
    .then(layers.max_pool, 'pool1', 2, 2, 'valid')
    .then(make.conv, 'conv2', 64, 5)
    .then(layers.max_pool, 'pool2', 2, 2, 'valid')
    .then(keras.layers.Flatten(name='flatten'))
    .then(make.dense, 'fc3', 1024)
    .then(make.dropout, 'dropout3', dropout_keep_prob)
    .then(make.logits, num_classes)
    .x
  )
  return keras.Model(images, x, name='slim_lenet')
