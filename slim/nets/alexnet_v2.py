"""AlexNet in one column, without normalization: "one weird trick".

The net of the 2017 trainers and of TF-Slim; the latter's has no seeds. Unlike
the paper, kernels are initialized as in TF-Slim.

References:
  Krizhevsky, One weird trick for parallelizing convolutional neural networks,
  https://arxiv.org/abs/1404.5997.
"""

from typing import Any

import keras

from slim.nets.blocks import layers


def build(
  num_classes: int,
  image_size: int = 224,
  channels: int = 3,
  weight_decay: float = 0.0005,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
) -> keras.Model:
  """Builds AlexNet v2; 50,308,009 parameters at 1001 classes.

  Args:
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 67. Below 224, the
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
  make = layers.Layers(
    layers.Style(layers.xavier, weight_decay, bias=0.1), seed
  )
  images = keras.Input((image_size, image_size, channels), name='images')
  begin: dict[str, Any] = {'initializer': layers.truncated_normal(0.005)}
  x = (
    layers.LayerChain(images)
    .then(make.conv, 'conv1', 64, 11, strides=4, padding='valid')
    .then(layers.max_pool, 'pool1', 3, 2, 'valid')
    .then(make.conv, 'conv2', 192, 5)
    .then(layers.max_pool, 'pool2', 3, 2, 'valid')
    .then(make.conv, 'conv3', 384, 3)
    .then(make.conv, 'conv4', 384, 3)
    .then(make.conv, 'conv5', 256, 3)
    .then(layers.max_pool, 'pool5', 3, 2, 'valid')
    .then(make.conv_full, 'fc6', 4096, 5, **begin)
    .then(make.dropout, 'dropout6', dropout_keep_prob)
    .then(make.conv, 'fc7', 4096, 1, **begin)
    .then(make.dropout, 'dropout7', dropout_keep_prob)
    .then(make.logits, num_classes, bias=0.0, **begin)
    .x
  )
  return keras.Model(images, x, name='alexnet_v2')
