"""OverFeat, the paper's fast net, as in TF-Slim.

Departures from the paper's table 1: the first layer has 64 filters instead of
96, and kernels have other initializers.

References:
  Sermanet et al., OverFeat: Integrated Recognition, Localization and Detection
  using Convolutional Networks, https://arxiv.org/abs/1312.6229.
"""

from typing import Any

import keras

from slim.nets.blocks import layers


def build(
  num_classes: int,
  image_size: int = 231,
  channels: int = 3,
  weight_decay: float = 0.0005,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
) -> keras.Model:
  """Builds OverFeat; 145,704,424 parameters at 1000 classes.

  Args:
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 71. Below 231, the
      kernel of fc6 shrinks to its input; above, logits are the mean over all
      positions.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel w, never for biases; 0 adds nothing.
    dropout_keep_prob: fraction of the units of fc6 and of fc7 that dropout
      keeps, in (0, 1].
    seed: kernels use seeds seed + 1 to seed + 8 in the order of the layers.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes] under any precision policy.
  """
  make = layers.Layers(layers.Style(layers.xavier, weight_decay), seed)
  images = keras.Input((image_size, image_size, channels), name='images')
  begin: dict[str, Any] = {'initializer': layers.truncated_normal(0.005)}
  hidden = {**begin, 'bias': 0.1}
  x = (
    layers.LayerChain(images)
    .then(make.conv, 'conv1', 64, 11, strides=4, padding='valid')
    .then(layers.max_pool, 'pool1', 2, 2, 'valid')
    .then(make.conv, 'conv2', 256, 5, padding='valid')
    .then(layers.max_pool, 'pool2', 2, 2, 'valid')
    .then(make.conv, 'conv3', 512, 3)
    .then(make.conv, 'conv4', 1024, 3)
    .then(make.conv, 'conv5', 1024, 3)
    .then(layers.max_pool, 'pool5', 2, 2, 'valid')
    .then(make.conv_full, 'fc6', 3072, 6, **hidden)
    .then(make.dropout, 'dropout6', dropout_keep_prob)
    .then(make.conv, 'fc7', 4096, 1, **hidden)
    .then(make.dropout, 'dropout7', dropout_keep_prob)
    .then(make.logits, num_classes, **begin)
    .x
  )
  return keras.Model(images, x, name='overfeat')
