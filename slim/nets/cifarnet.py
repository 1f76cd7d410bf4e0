"""CifarNet of TF-Slim.

Differences from `cifar10_alexnet`, which follows the same tutorial: images of
32 pixels, 2x2 pooling instead of 3x3, a dropout, and a zero initial bias in the
second convolution.

References:
  TensorFlow's tutorial on CIFAR-10 of 2016, after the model of Krizhevsky's
  cuda-convnet.
"""

import keras

from slim.nets.blocks import layers
from slim.nets.blocks import normalization


def build(
  num_classes: int,
  image_size: int = 32,
  channels: int = 3,
  weight_decay: float = 0.004,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
) -> keras.Model:
  """Builds CifarNet; 1,756,426 parameters at 10 classes and 32x32x3.

  Args:
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 4.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for the
      kernels of fc3 and fc4, and for no others; 0 adds nothing.
    dropout_keep_prob: fraction of the units of fc3 that dropout keeps, in
      (0, 1].
    seed: kernels use seeds seed + 1 to seed + 5 in the order of the layers.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes] under any precision policy.
  """
  make = layers.Layers(
    layers.Style(layers.truncated_normal(0.05), weight_decay=0.0), seed
  )
  images = keras.Input((image_size, image_size, channels), name='images')
  hidden = {
    'initializer': layers.truncated_normal(0.04),
    'weight_decay': weight_decay,
    'bias': 0.1,
  }
  x = (
    layers.LayerChain(images)
    .then(make.conv, 'conv1', 64, 5)
    .then(layers.max_pool, 'pool1', 2, 2, 'valid')
    .then(_normalize, 'norm1')
    .then(make.conv, 'conv2', 64, 5)
    .then(_normalize, 'norm2')
    .then(layers.max_pool, 'pool2', 2, 2, 'valid')
    .then(keras.layers.Flatten(name='flatten'))
    .then(make.dense, 'fc3', 384, **hidden)
    .then(make.dropout, 'dropout3', dropout_keep_prob)
    .then(make.dense, 'fc4', 192, **hidden)
    .then(
      make.logits, num_classes, initializer=layers.truncated_normal(1 / 192)
    )
    .x
  )
  return keras.Model(images, x, name='cifarnet')


def _normalize(x: keras.KerasTensor, name: str) -> keras.KerasTensor:
  return normalization.LocalResponseNormalization(
    depth_radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75, name=name
  )(x)
