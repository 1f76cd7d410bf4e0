"""GoogLeNet, or Inception v1, with batch normalization.

TF-Slim's net, which the 2017 trainers call googlenet. Departures from the
paper: convolutions are normalized; the 5x5 branch has a 3x3 convolution; there
are neither auxiliary classifiers nor local response normalization. Unlike in
TF-Slim and the 2017 trainers, every kernel has a different fixed seed, so that
replicas start with equal weights.

References:
  Szegedy et al., Going Deeper with Convolutions,
  https://arxiv.org/abs/1409.4842.
"""

import keras

from slim.nets.blocks import inception
from slim.nets.blocks import layers

BATCH_NORM = layers.BatchNorm(decay=0.9997, epsilon=0.001)

_CONV = inception.Conv

# For each block: filters of the 1x1 branch, of the 1x1 -> 3x3 branch, of the
# second 1x1 -> 3x3 branch, and of the branch with pooling.
BLOCKS = {
  'mixed_3b': (64, (96, 128), (16, 32), 32),
  'mixed_3c': (128, (128, 192), (32, 96), 64),
  'mixed_4b': (192, (96, 208), (16, 48), 64),
  'mixed_4c': (160, (112, 224), (24, 64), 64),
  'mixed_4d': (128, (128, 256), (24, 64), 64),
  'mixed_4e': (112, (144, 288), (32, 64), 64),
  'mixed_4f': (256, (160, 320), (32, 128), 128),
  'mixed_5b': (256, (160, 320), (32, 128), 128),
  'mixed_5c': (384, (192, 384), (48, 128), 128),
}

# Name and size of the poolings before blocks; strides are 2.
POOLS = {
  'mixed_3b': ('maxpool_3a_3x3', 3),
  'mixed_4b': ('maxpool_4a_3x3', 3),
  'mixed_5b': ('maxpool_5a_2x2', 2),
}


def build(
  num_classes: int,
  image_size: int = 224,
  channels: int = 3,
  weight_decay: float = 0.00004,
  dropout_keep_prob: float = 0.8,
  seed: int = 1,
) -> keras.Model:
  """Builds GoogLeNet; 6,618,649 trainable parameters at 1001 classes.

  Args:
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 1.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel w, never for biases and beta; 0 adds nothing.
    dropout_keep_prob: fraction of the features that dropout keeps, in (0, 1].
    seed: kernels use seeds seed + 1, + 2, ... in the order of the layers.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes] under any precision policy.
  """
  make = layers.Layers(
    layers.Style(layers.truncated_normal(0.01), weight_decay, BATCH_NORM), seed
  )
  images = keras.Input((image_size, image_size, channels), name='images')
  x = (
    layers.LayerChain(images)
    .then(make.conv, 'conv2d_1a_7x7', 64, 7, strides=2)
    .then(layers.max_pool, 'maxpool_2a_3x3', 3, 2)
    .then(make.conv, 'conv2d_2b_1x1', 64, 1)
    .then(make.conv, 'conv2d_2c_3x3', 192, 3)
    .x
  )
  for name, (first, second, third, last) in BLOCKS.items():
    if name in POOLS:
      x = layers.max_pool(x, *POOLS[name], 2)
    branches: list[inception.Branch] = [
      [_CONV(first)],
      [_CONV(second[0]), _CONV(second[1], 3)],
      [_CONV(third[0]), _CONV(third[1], 3)],
      [inception.MAX, _CONV(last)],
    ]
    x = inception.mixed(make, x, name, branches)
  logits = inception.head(
    make,
    x,
    num_classes,
    dropout_keep_prob,
    initializer=layers.variance_scaling,
  )
  return keras.Model(images, logits, name='inception_v1')
