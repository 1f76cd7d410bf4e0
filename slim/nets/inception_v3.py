"""Inception v3, with its auxiliary classifier.

Two nets with the same layers and different initializers: `build`, of the 2017
trainers, draws kernels from a truncated normal of deviation 0.1 (logits 0.01);
`build_slim`, of TF-Slim, scales the variance with the fan in. In 2017 all
layers had the same seed; here each has a different seed, so that branches of
equal shape differ.

References:
  Szegedy et al., Rethinking the Inception Architecture for Computer Vision,
  https://arxiv.org/abs/1512.00567.
"""

import functools

import keras

from slim.nets.blocks import inception
from slim.nets.blocks import layers

BATCH_NORM = layers.BatchNorm(decay=0.9997, epsilon=0.001)

_CONV = inception.Conv


def _build(
  kernels: layers.Initializer,
  logits_kernel: layers.Initializer,
  num_classes: int,
  image_size: int = 299,
  channels: int = 3,
  weight_decay: float = 0.00004,
  dropout_keep_prob: float = 0.8,
  seed: int = 1,
) -> keras.Model:
  """Builds Inception v3.

  27,145,970 trainable parameters at 1001 classes and 299 pixels, of which
  3,326,569 belong to the auxiliary classifier.

  Args:
    kernels: initializer of all layers except the logits and the last two of
      the auxiliary classifier.
    logits_kernel: initializer of the logits.
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
  make = layers.Layers(layers.Style(kernels, weight_decay, BATCH_NORM), seed)
  images = keras.Input((image_size, image_size, channels), name='images')
  x = inception.stem(make, images)
  for name, pooled in {'5b': 32, '5c': 64, '5d': 64}.items():
    x = inception.mixed(make, x, f'mixed_{name}', _block_35(pooled))
  x = inception.mixed(make, x, 'mixed_6a', _REDUCTION_35, 'valid')
  for name, width in {'6b': 128, '6c': 160, '6d': 160, '6e': 192}.items():
    x = inception.mixed(make, x, f'mixed_{name}', _block_17(width))
  auxiliary = inception.auxiliary_head(
    make,
    x,
    num_classes,
    conv=layers.truncated_normal(0.01),
    logits=layers.truncated_normal(0.001),
  )
  x = inception.mixed(make, x, 'mixed_7a', _REDUCTION_17, 'valid')
  for name in ('mixed_7b', 'mixed_7c'):
    x = inception.mixed(make, x, name, _BLOCK_8)
  logits = inception.head(
    make, x, num_classes, dropout_keep_prob, initializer=logits_kernel
  )
  return keras.Model(images, [logits, auxiliary], name='inception_v3')


def _block_35(pooled: int) -> list[inception.Branch]:
  return [
    [_CONV(64)],
    [_CONV(48), _CONV(64, 5)],
    [_CONV(64), _CONV(96, 3), _CONV(96, 3)],
    [inception.AVG, _CONV(pooled)],
  ]


_REDUCTION_35: list[inception.Branch] = [
  [_CONV(384, 3, 2)],
  [_CONV(64), _CONV(96, 3), _CONV(96, 3, 2)],
  [inception.HALVE],
]


def _block_17(width: int) -> list[inception.Branch]:
  row, column = (1, 7), (7, 1)
  return [
    [_CONV(192)],
    [_CONV(width), _CONV(width, row), _CONV(192, column)],
    [
      _CONV(width),
      _CONV(width, column),
      _CONV(width, row),
      _CONV(width, column),
      _CONV(192, row),
    ],
    [inception.AVG, _CONV(192)],
  ]


_REDUCTION_17: list[inception.Branch] = [
  [_CONV(192), _CONV(320, 3, 2)],
  [_CONV(192), _CONV(192, (1, 7)), _CONV(192, (7, 1)), _CONV(192, 3, 2)],
  [inception.HALVE],
]

_SIDES = (_CONV(384, (1, 3)), _CONV(384, (3, 1)))

_BLOCK_8: list[inception.Branch] = [
  [_CONV(320)],
  [_CONV(384), _SIDES],
  [_CONV(448), _CONV(384, 3), _SIDES],
  [inception.AVG, _CONV(192)],
]

build = functools.partial(
  _build, layers.truncated_normal(0.1), layers.truncated_normal(0.01)
)
build_slim = functools.partial(
  _build, layers.variance_scaling, layers.variance_scaling
)
