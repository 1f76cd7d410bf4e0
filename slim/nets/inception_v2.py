"""Inception v2: GoogLeNet with batch normalization and 3x3 instead of 5x5.

TF-Slim's net. Unlike in the paper, its first layer is a separable convolution:
7x7 per channel with eight filters per channel, then 1x1. As in TF-Slim, it has
a bias and no weight decay.

References:
  Ioffe and Szegedy, Batch Normalization, https://arxiv.org/abs/1502.03167,
  figure 5.
"""

from collections.abc import Sequence

import keras

from slim.nets.blocks import inception
from slim.nets.blocks import layers

BATCH_NORM = layers.BatchNorm(decay=0.9997, epsilon=0.001)

# For each block: filters of the 1x1 branch, of the 1x1 -> 3x3 branch, and of
# the 1x1 -> 3x3 -> 3x3 branch; the pooling, and the filters after it.
BLOCKS = {
  'mixed_3b': (64, (64, 64), (64, 96, 96), inception.AVG, 32),
  'mixed_3c': (64, (64, 96), (64, 96, 96), inception.AVG, 64),
  'mixed_4b': (224, (64, 96), (96, 128, 128), inception.AVG, 128),
  'mixed_4c': (192, (96, 128), (96, 128, 128), inception.AVG, 128),
  'mixed_4d': (160, (128, 160), (128, 160, 160), inception.AVG, 96),
  'mixed_4e': (96, (128, 192), (160, 192, 192), inception.AVG, 96),
  'mixed_5b': (352, (192, 320), (160, 224, 224), inception.AVG, 128),
  'mixed_5c': (352, (192, 320), (192, 224, 224), inception.MAX, 128),
}

# Filters of the blocks that halve the image, by the block that follows.
REDUCTIONS = {
  'mixed_4b': ('mixed_4a', (128, 160), (64, 96, 96)),
  'mixed_5b': ('mixed_5a', (128, 192), (192, 256, 256)),
}


def build(
  num_classes: int,
  image_size: int = 224,
  channels: int = 3,
  weight_decay: float = 0.00004,
  dropout_keep_prob: float = 0.8,
  seed: int = 1,
) -> keras.Model:
  """Builds Inception v2; 11,179,361 trainable parameters at 1001 classes.

  Args:
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 1.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel w except the first layer's, never for biases and beta; 0 adds
      nothing.
    dropout_keep_prob: fraction of the features that dropout keeps, in (0, 1].
    seed: kernels use seeds seed + 1, + 2, ... in the order of the layers.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes] under any precision policy.
  """
  make = layers.Layers(
    layers.Style(layers.variance_scaling, weight_decay, BATCH_NORM), seed + 2
  )
  images = keras.Input((image_size, image_size, channels), name='images')
  x = _stem(make, images, seed)
  for name, (first, second, third, pool, last) in BLOCKS.items():
    if name in REDUCTIONS:
      before, short, long = REDUCTIONS[name]
      branches = [_branch(short, 2), _branch(long, 2), [inception.HALVE]]
      x = inception.mixed(make, x, before, branches)
    branches = [
      [inception.Conv(first)],
      _branch(second),
      _branch(third),
      [pool, inception.Conv(last, stddev=0.1)],
    ]
    x = inception.mixed(make, x, name, branches)
  logits = inception.head(make, x, num_classes, dropout_keep_prob)
  return keras.Model(images, logits, name='inception_v2')


def _stem(
  make: layers.Layers, x: keras.KerasTensor, seed: int
) -> keras.KerasTensor:
  """Builds the first layers, from 224x224 to 28x28 pixels."""
  separable = keras.layers.SeparableConv2D(
    64,
    7,
    strides=2,
    padding='same',
    depth_multiplier=8,
    activation='relu',
    depthwise_initializer=layers.truncated_normal(1.0)(seed + 1),
    pointwise_initializer=layers.truncated_normal(1.0)(seed + 2),
    name='conv2d_1a_7x7',
  )
  begin = layers.truncated_normal(0.1)
  return (
    layers.LayerChain(separable(x))
    .then(layers.max_pool, 'maxpool_2a_3x3', 3, 2)
    .then(make.conv, 'conv2d_2b_1x1', 64, 1, initializer=begin)
    .then(make.conv, 'conv2d_2c_3x3', 192, 3)
    .then(layers.max_pool, 'maxpool_3a_3x3', 3, 2)
    .x
  )


def _branch(filters: Sequence[int], strides: int = 1) -> inception.Branch:
  """Returns a 1x1 convolution and a 3x3 one for each further number.

  The last convolution has the strides.
  """
  first, *middle, last = filters
  return [
    inception.Conv(first, stddev=0.09),
    *(inception.Conv(number, 3) for number in middle),
    inception.Conv(last, 3, strides),
  ]
