"""Inception v4, with an auxiliary classifier.

TF-Slim's net: the paper's, plus the auxiliary classifier of Inception v3.

References:
  Szegedy et al., Inception-v4, Inception-ResNet and the Impact of Residual
  Connections on Learning, https://arxiv.org/abs/1602.07261.
"""

import keras

from slim.nets.blocks import inception
from slim.nets.blocks import layers

BATCH_NORM = layers.BatchNorm(decay=0.9997, epsilon=0.001)

_CONV = inception.Conv
_ROW = (1, 7)
_COLUMN = (7, 1)

_STEM: dict[str, list[inception.Branch]] = {
  'mixed_3a': [[inception.HALVE], [_CONV(96, 3, 2)]],
  'mixed_4a': [
    [_CONV(64), _CONV(96, 3, valid=True)],
    [
      _CONV(64),
      _CONV(64, _ROW),
      _CONV(64, _COLUMN),
      _CONV(96, 3, valid=True),
    ],
  ],
  'mixed_5a': [[_CONV(192, 3, 2)], [inception.HALVE]],
}

_BLOCK_35: list[inception.Branch] = [
  [_CONV(96)],
  [_CONV(64), _CONV(96, 3)],
  [_CONV(64), _CONV(96, 3), _CONV(96, 3)],
  [inception.AVG, _CONV(96)],
]

_REDUCTION_35: list[inception.Branch] = [
  [_CONV(384, 3, 2)],
  [_CONV(192), _CONV(224, 3), _CONV(256, 3, 2)],
  [inception.HALVE],
]

_BLOCK_17: list[inception.Branch] = [
  [_CONV(384)],
  [_CONV(192), _CONV(224, _ROW), _CONV(256, _COLUMN)],
  [
    _CONV(192),
    _CONV(192, _COLUMN),
    _CONV(224, _ROW),
    _CONV(224, _COLUMN),
    _CONV(256, _ROW),
  ],
  [inception.AVG, _CONV(128)],
]

_REDUCTION_17: list[inception.Branch] = [
  [_CONV(192), _CONV(192, 3, 2)],
  [_CONV(256), _CONV(256, _ROW), _CONV(320, _COLUMN), _CONV(320, 3, 2)],
  [inception.HALVE],
]

_BLOCK_8: list[inception.Branch] = [
  [_CONV(256)],
  [_CONV(384), (_CONV(256, (1, 3)), _CONV(256, (3, 1)))],
  [
    _CONV(384),
    _CONV(448, (3, 1)),
    _CONV(512, (1, 3)),
    (_CONV(256, (1, 3)), _CONV(256, (3, 1))),
  ],
  [inception.AVG, _CONV(256)],
]


def build(
  num_classes: int,
  image_size: int = 299,
  channels: int = 3,
  weight_decay: float = 0.00004,
  dropout_keep_prob: float = 0.8,
  seed: int = 1,
) -> keras.Model:
  """Builds Inception v4.

  Args:
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 107.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel w, never for biases and beta; 0 adds nothing.
    dropout_keep_prob: fraction of the features that dropout keeps, in (0, 1].
    seed: kernels use seeds seed + 1, + 2, ... in the order of the layers.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to a list of
    logits and auxiliary logits, both float32 [B, num_classes] under any
    precision policy.
  """
  make = layers.Layers(
    layers.Style(layers.variance_scaling, weight_decay, BATCH_NORM), seed
  )
  images = keras.Input((image_size, image_size, channels), name='images')
  x = (
    layers.LayerChain(images)
    .then(make.conv, 'conv2d_1a_3x3', 32, 3, strides=2, padding='valid')
    .then(make.conv, 'conv2d_2a_3x3', 32, 3, padding='valid')
    .then(make.conv, 'conv2d_2b_3x3', 64, 3)
    .x
  )
  for name, branches in _STEM.items():
    x = inception.mixed(make, x, name, branches, 'valid')
  for letter in 'bcde':
    x = inception.mixed(make, x, f'mixed_5{letter}', _BLOCK_35)
  x = inception.mixed(make, x, 'mixed_6a', _REDUCTION_35, 'valid')
  for letter in 'bcdefgh':
    x = inception.mixed(make, x, f'mixed_6{letter}', _BLOCK_17)
  auxiliary = inception.auxiliary_head(
    make, x, num_classes, logits=layers.xavier
  )
  x = inception.mixed(make, x, 'mixed_7a', _REDUCTION_17, 'valid')
  for letter in 'bcd':
    x = inception.mixed(make, x, f'mixed_7{letter}', _BLOCK_8)
  logits = inception.head(
    make, x, num_classes, dropout_keep_prob, initializer=layers.xavier
  )
  return keras.Model(images, [logits, auxiliary], name='inception_v4')
