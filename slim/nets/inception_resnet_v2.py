"""Inception-ResNet v2: Inception blocks with residual connections.

TF-Slim's net, with the auxiliary classifier of Inception v3, which the paper
does not have. As in TF-Slim, weight decay includes biases.

References:
  Szegedy et al., Inception-v4, Inception-ResNet and the Impact of Residual
  Connections on Learning, https://arxiv.org/abs/1602.07261.
"""

import keras

from slim.nets.blocks import inception
from slim.nets.blocks import layers

BATCH_NORM = layers.BatchNorm(decay=0.9997, epsilon=0.001)

_CONV = inception.Conv

_FIRST: list[inception.Branch] = [
  [_CONV(96)],
  [_CONV(48), _CONV(64, 5)],
  [_CONV(64), _CONV(96, 3), _CONV(96, 3)],
  [inception.AVG, _CONV(64)],
]

_BLOCK_35: list[inception.Branch] = [
  [_CONV(32)],
  [_CONV(32), _CONV(32, 3)],
  [_CONV(32), _CONV(48, 3), _CONV(64, 3)],
]

_REDUCTION_35: list[inception.Branch] = [
  [_CONV(384, 3, 2)],
  [_CONV(256), _CONV(256, 3), _CONV(384, 3, 2)],
  [inception.HALVE],
]

_BLOCK_17: list[inception.Branch] = [
  [_CONV(192)],
  [_CONV(128), _CONV(160, (1, 7)), _CONV(192, (7, 1))],
]

_REDUCTION_17: list[inception.Branch] = [
  [_CONV(256), _CONV(384, 3, 2)],
  [_CONV(256), _CONV(288, 3, 2)],
  [_CONV(256), _CONV(288, 3), _CONV(320, 3, 2)],
  [inception.HALVE],
]

_BLOCK_8: list[inception.Branch] = [
  [_CONV(192)],
  [_CONV(192), _CONV(224, (1, 3)), _CONV(256, (3, 1))],
]


def build(
  num_classes: int,
  image_size: int = 299,
  channels: int = 3,
  weight_decay: float = 0.00004,
  dropout_keep_prob: float = 0.8,
  seed: int = 1,
) -> keras.Model:
  """Builds Inception-ResNet v2.

  Args:
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 107.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel and every bias w, never for beta; 0 adds nothing.
    dropout_keep_prob: fraction of the features that dropout keeps, in (0, 1].
    seed: kernels use seeds seed + 1, + 2, ... in the order of the layers.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to a list of
    logits and auxiliary logits, both float32 [B, num_classes] under any
    precision policy.
  """
  style = layers.Style(layers.xavier, weight_decay, BATCH_NORM, bias_decay=True)
  make = layers.Layers(style, seed)
  images = keras.Input((image_size, image_size, channels), name='images')
  x = inception.stem(make, images)
  x = inception.mixed(make, x, 'mixed_5b', _FIRST)
  for i in range(1, 11):
    x = _residual(make, x, f'block35_{i}', _BLOCK_35, 0.17)
  x = inception.mixed(make, x, 'mixed_6a', _REDUCTION_35, 'valid')
  for i in range(1, 21):
    x = _residual(make, x, f'block17_{i}', _BLOCK_17, 0.10)
  auxiliary = inception.auxiliary_head(make, x, num_classes)
  x = inception.mixed(make, x, 'mixed_7a', _REDUCTION_17, 'valid')
  for i in range(1, 10):
    x = _residual(make, x, f'block8_{i}', _BLOCK_8, 0.20)
  x = _residual(make, x, 'block8_10', _BLOCK_8)
  x = make.conv(x, 'conv2d_7b_1x1', 1536, 1)
  logits = inception.head(make, x, num_classes, dropout_keep_prob)
  return keras.Model(images, [logits, auxiliary], name='inception_resnet_v2')


def _residual(
  make: layers.Layers,
  x: keras.KerasTensor,
  name: str,
  branches: list[inception.Branch],
  scale: float | None = None,
) -> keras.KerasTensor:
  """Applies relu(x + scale * block(x)); without a scale, x + block(x)."""
  up = make.conv(
    inception.mixed(make, x, name, branches),
    f'{name}_conv2d_1x1',
    x.shape[-1],
    1,
    batch_norm=None,
    activation=None,
  )
  if scale is None:
    return keras.layers.Add(name=f'{name}_sum')([x, up])
  up = keras.layers.Rescaling(scale, name=f'{name}_scaled')(up)
  x = keras.layers.Add(name=f'{name}_sum')([x, up])
  return keras.layers.Activation('relu', name=f'{name}_act')(x)
