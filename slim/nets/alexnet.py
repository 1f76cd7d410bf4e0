"""AlexNet in two columns, with batch normalization.

The net of the 2017 trainers. Departures from the paper: convolutions have batch
normalization and no bias, so results are not those of plain AlexNet; the
columns are concatenated before the third convolution and after the fifth.

References:
  Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural
  Networks, NIPS 2012.
"""

import keras

from slim.nets.blocks import layers
from slim.nets.blocks import normalization

# Feature maps of the two columns, each [B, height, width, channels].
Pair = list[keras.KerasTensor]

BATCH_NORM = layers.BatchNorm(decay=0.9997, epsilon=0.001)


def build(
  num_classes: int,
  image_size: int = 224,
  channels: int = 3,
  weight_decay: float = 0.0005,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
) -> keras.Model:
  """Builds AlexNet; 60,969,321 trainable parameters at 1001 classes.

  Args:
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 57.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel w, never for biases and beta; 0 adds nothing.
    dropout_keep_prob: fraction of the units of fc6 and of fc7 that dropout
      keeps, in (0, 1].
    seed: kernels use seeds seed + 1 to seed + 13 in the order of the layers,
      the first column before the second.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes] under any precision policy.
  """
  style = layers.Style(layers.truncated_normal(0.01), weight_decay, BATCH_NORM)
  make = layers.Layers(style, seed)
  images = keras.Input((image_size, image_size, channels), name='images')

  def columns(
    pair: Pair, layer: str, filters: int, size: int, strides: int = 1
  ) -> Pair:
    return [
      make.conv(x, f'{layer}_{i}', filters, size, strides=strides)
      for i, x in enumerate(pair, start=1)
    ]

  pair = columns([images, images], 'conv1', 48, 11, strides=4)
  pair = _normalize_and_pool(pair, 1)
  pair = columns(pair, 'conv2', 128, 5)
  both = keras.layers.Concatenate(name='concat2')(_normalize_and_pool(pair, 2))
  pair = columns([both, both], 'conv3', 192, 3)
  pair = columns(pair, 'conv4', 192, 3)
  pair = columns(pair, 'conv5', 128, 3)
  x = keras.layers.Concatenate(name='concat5')(_pool(pair, 5))
  x = keras.layers.Flatten(name='flatten')(x)
  hidden = {'initializer': layers.truncated_normal(0.005), 'bias': 0.1}
  for i in (6, 7):
    x = make.dense(x, f'fc{i}', 4096, **hidden)
    x = make.dropout(x, f'dropout{i}', dropout_keep_prob)
  return keras.Model(images, make.logits(x, num_classes), name='alexnet')


def _normalize_and_pool(pair: Pair, layer: int) -> Pair:
  normalized = [
    normalization.LocalResponseNormalization(
      depth_radius=2, bias=2.0, alpha=1e-4, beta=0.75, name=f'lrn{layer}_{i}'
    )(x)
    for i, x in enumerate(pair, start=1)
  ]
  return _pool(normalized, layer)


def _pool(pair: Pair, layer: int) -> Pair:
  return [
    layers.max_pool(x, f'pool{layer}_{i}', 3, 2, 'valid')
    for i, x in enumerate(pair, start=1)
  ]
