"""Residual networks of bottlenecks, v1 and v2, of 50 to 200 layers.

TF-Slim's nets. Departures from the papers: the last unit of a block halves the
image, not the first unit of the next block, and does so in its 3x3 layer.

References:
  v1: He et al., Deep Residual Learning for Image Recognition,
  https://arxiv.org/abs/1512.03385.
  v2: He et al., Identity Mappings in Deep Residual Networks,
  https://arxiv.org/abs/1603.05027.
"""

from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import keras

from slim import errors
from slim.nets.blocks import layers

BATCH_NORM = layers.BatchNorm(decay=0.997, epsilon=1e-5, scale=True)

# Number of units in each of the four blocks, by depth.
UNITS = {
  50: (3, 4, 6, 3),
  101: (3, 4, 23, 3),
  152: (3, 8, 36, 3),
  200: (3, 24, 36, 3),
}

_PLAIN: dict[str, Any] = {'batch_norm': None, 'activation': None}


def build(
  version: int,
  depth: int,
  num_classes: int,
  *,
  image_size: int = 224,
  channels: int = 3,
  weight_decay: float = 0.0001,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
  bias: bool = False,
  first_kernel: int = 7,
  first_stride: int = 2,
  last_pool: int = 0,
) -> keras.Model:
  """Builds a residual network.

  Trainable parameters at 1000 classes, v1 / v2: 25,557,032 / 25,568,360 for 50
  layers, 44,549,160 / 44,577,896 for 101, 60,192,808 / 60,236,904 for 152.

  Args:
    version: 1, or 2 for units that normalize before they convolve.
    depth: a key of `UNITS`.
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 1.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel w, never for biases, beta and gamma; 0 adds nothing.
    dropout_keep_prob: not used, because this net has no dropout.
    seed: kernels use seeds seed + 1, + 2, ... in the order of the layers.
    bias: whether normalized convolutions have a bias nevertheless.
    first_kernel: height and width of the first convolution in pixels, >= 1.
    first_stride: strides of the first convolution in pixels, >= 1.
    last_pool: height and width of the last average pooling in pixels, with
      strides of 1; 0 pools the whole feature map.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes] under any precision policy.

  Raises:
    slim.errors.DataError: a kernel or stride is below 1, or `last_pool` is
      larger than the feature map.
  """
  del dropout_keep_prob
  if min(first_kernel, first_stride) < 1:
    raise errors.DataError(
      'resnet: expected first_kernel and first_stride >= 1, received '
      f'{first_kernel} and {first_stride}. Omit them to use 7 and 2.'
    )
  make = layers.Layers(
    layers.Style(
      layers.variance_scaling, weight_decay, BATCH_NORM, biased=bias
    ),
    seed,
  )
  apply = {1: _unit_v1, 2: _unit_v2}[version]
  images = keras.Input((image_size, image_size, channels), name='images')
  # The first unit of v2 normalizes its input.
  x = make.conv_same(
    images,
    'conv1',
    64,
    first_kernel,
    first_stride,
    **(_PLAIN if version == 2 else {}),
  )
  x = layers.max_pool(x, 'pool1', 3, 2)
  for unit in _units(depth):
    x = apply(make, x, unit)
  if version == 2:
    x = make.normalize(x, 'postnorm')
  x = _last_pool(x, last_pool)
  logits = make.logits(x, num_classes)
  return keras.Model(images, logits, name=f'resnet_v{version}_{depth}')


def _last_pool(x: keras.KerasTensor, size: int) -> keras.KerasTensor:
  """Applies the last pooling; returns [B, features]."""
  if size == 0:
    return keras.layers.GlobalAveragePooling2D(name='pool5')(x)
  if not 0 < size <= x.shape[1]:
    raise errors.DataError(
      f'resnet: expected last_pool from 0 to {x.shape[1]}, the size of the '
      f'feature map, received {size}. Use 0 to pool the whole map.'
    )
  x = keras.layers.AveragePooling2D(size, strides=1, name='pool5')(x)
  return keras.layers.Flatten(name='pool5_flat')(x)


class _Unit(NamedTuple):
  """A residual unit: its name, its bottleneck's channels, its strides."""

  name: str
  width: int
  strides: int


def _units(depth: int) -> Iterator[_Unit]:
  """Yields all units of a net of this depth, in order."""
  for block, units in enumerate(UNITS[depth], start=1):
    for i in range(1, units + 1):
      halves = i == units and block < len(UNITS[depth])
      yield _Unit(f'block{block}_unit_{i}', 32 * 2**block, 2 if halves else 1)


def _unit_v1(
  make: layers.Layers, x: keras.KerasTensor, unit: _Unit
) -> keras.KerasTensor:
  """Applies relu(shortcut + convolutions); convolutions are normalized."""
  name, width, strides = unit
  shortcut = _shortcut(make, x, x, unit, {'activation': None})
  x = (
    layers.LayerChain(x)
    .then(make.conv, f'{name}_conv1', width, 1)
    .then(make.conv_same, f'{name}_conv2', width, 3, strides)
    .then(make.conv, f'{name}_conv3', 4 * width, 1, activation=None)
    .x
  )
  x = keras.layers.Add(name=f'{name}_sum')([shortcut, x])
  return keras.layers.Activation('relu', name=f'{name}_act')(x)


def _unit_v2(
  make: layers.Layers, x: keras.KerasTensor, unit: _Unit
) -> keras.KerasTensor:
  """Applies shortcut + convolutions, to the normalized input."""
  name, width, strides = unit
  before = make.normalize(x, f'{name}_preact')
  shortcut = _shortcut(make, x, before, unit, _PLAIN)
  x = (
    layers.LayerChain(before)
    .then(make.conv, f'{name}_conv1', width, 1)
    .then(make.conv_same, f'{name}_conv2', width, 3, strides)
    .then(make.conv, f'{name}_conv3', 4 * width, 1, **_PLAIN)
    .x
  )
  return keras.layers.Add(name=f'{name}_sum')([shortcut, x])


def _shortcut(
  make: layers.Layers,
  x: keras.KerasTensor,
  before: keras.KerasTensor,
  unit: _Unit,
  changes: dict[str, Any],
) -> keras.KerasTensor:
  """Returns `x`, or a convolution of `before` if the unit adds channels."""
  name, channels = f'{unit.name}_shortcut', 4 * unit.width
  if x.shape[-1] == channels:
    return x if unit.strides == 1 else layers.max_pool(x, name, 1, unit.strides)
  return make.conv(before, name, channels, 1, strides=unit.strides, **changes)
