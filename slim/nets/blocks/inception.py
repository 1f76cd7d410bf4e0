"""Blocks of the Inception nets.

All branches of a block have the same input, and their outputs are concatenated
along the channels. A branch is a list of steps: `Conv`, `Pool`, or a tuple of
parallel `Conv`s, whose outputs are concatenated.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras

from slim.nets.blocks import layers


class Conv(NamedTuple):
  """A convolution in a branch.

  Attributes:
    filters: number of output channels.
    size: height and width of the kernel, or one number for both.
    strides: 1 or 2.
    valid: whether padding is 'valid' although strides are 1.
    stddev: standard deviation of the truncated normal initializer; None uses
      the net's initializer.
  """

  filters: int
  size: layers.Size = 1
  strides: int = 1
  valid: bool = False
  stddev: float | None = None


class Pool(NamedTuple):
  """A 3x3 pooling in a branch.

  Attributes:
    kind: 'max' or 'avg'.
    strides: 1 or 2.
  """

  kind: str
  strides: int = 1


AVG = Pool('avg')
MAX = Pool('max')
HALVE = Pool('max', strides=2)

Step = Conv | Pool | tuple[Conv, ...]
Branch = Sequence[Step]


def mixed(
  make: layers.Layers,
  x: keras.KerasTensor,
  name: str,
  branches: Sequence[Branch],
  padding: str = 'same',
) -> keras.KerasTensor:
  """Builds one block.

  A layer's name contains its position: `<name>_branch_1_conv2d_0b_3x3` is the
  second step of the second branch, a 3x3 convolution. Steps that make the
  image smaller are named 1a, 1b, ...

  Args:
    make: makes the layers.
    x: feature maps, [B, height, width, channels].
    name: name of the block.
    branches: branches of the block.
    padding: padding of steps with strides of 2, 'same' or 'valid'.

  Returns:
    The outputs of the branches, concatenated along the channels.
  """
  ends = [
    _branch(make, x, f'{name}_branch_{i}', steps, padding)
    for i, steps in enumerate(branches)
  ]
  if len(ends) == 1:
    return ends[0]
  return keras.layers.Concatenate(name=name)(ends)


def _branch(
  make: layers.Layers,
  x: keras.KerasTensor,
  name: str,
  steps: Branch,
  padding: str,
) -> keras.KerasTensor:
  letters = {'0': iter('abcdefgh'), '1': iter('abcdefgh')}

  def apply(x: keras.KerasTensor, step: Conv | Pool) -> keras.KerasTensor:
    step_padding = padding if step.strides > 1 else 'same'
    if isinstance(step, Conv) and step.valid:
      step_padding = 'valid'
    digit = '1' if step.strides > 1 or step_padding == 'valid' else '0'
    position = f'{digit}{next(letters[digit])}'
    if isinstance(step, Pool):
      return _pool(
        x, f'{name}_{step.kind}pool_{position}_3x3', step, step_padding
      )
    return _conv(make, x, f'{name}_conv2d_{position}', step, step_padding)

  for step in steps:
    if isinstance(step, (Conv, Pool)):
      x = apply(x, step)
    else:
      sides = [apply(x, side) for side in step]
      x = keras.layers.Concatenate(name=f'{name}_sides')(sides)
  return x


def _pool(
  x: keras.KerasTensor, name: str, step: Pool, padding: str
) -> keras.KerasTensor:
  kinds = {
    'avg': keras.layers.AveragePooling2D,
    'max': keras.layers.MaxPooling2D,
  }
  layer = kinds[step.kind](3, strides=step.strides, padding=padding, name=name)
  return layer(x)


def _conv(
  make: layers.Layers, x: keras.KerasTensor, name: str, step: Conv, padding: str
) -> keras.KerasTensor:
  height, width = (
    step.size if isinstance(step.size, tuple) else (step.size, step.size)
  )
  changes: dict[str, Any] = {}
  if step.stddev is not None:
    changes['initializer'] = layers.truncated_normal(step.stddev)
  return make.conv(
    x,
    f'{name}_{height}x{width}',
    step.filters,
    (height, width),
    strides=step.strides,
    padding=padding,
    **changes,
  )


def stem(make: layers.Layers, x: keras.KerasTensor) -> keras.KerasTensor:
  """Builds the stem of Inception v3 and -ResNet: 299x299 to 35x35 pixels."""
  return (
    layers.LayerChain(x)
    .then(make.conv, 'conv2d_1a_3x3', 32, 3, strides=2, padding='valid')
    .then(make.conv, 'conv2d_2a_3x3', 32, 3, padding='valid')
    .then(make.conv, 'conv2d_2b_3x3', 64, 3)
    .then(layers.max_pool, 'maxpool_3a_3x3', 3, 2, 'valid')
    .then(make.conv, 'conv2d_3b_1x1', 80, 1, padding='valid')
    .then(make.conv, 'conv2d_4a_3x3', 192, 3, padding='valid')
    .then(layers.max_pool, 'maxpool_5a_3x3', 3, 2, 'valid')
    .x
  )


def head(
  make: layers.Layers,
  x: keras.KerasTensor,
  num_classes: int,
  keep: float,
  **changes: Any,
) -> keras.KerasTensor:
  """Builds global average pooling, dropout and logits."""
  x = keras.layers.GlobalAveragePooling2D(name='logits_avgpool')(x)
  x = make.dropout(x, 'logits_dropout', keep)
  return make.logits(x, num_classes, **changes)


def auxiliary_head(
  make: layers.Layers,
  x: keras.KerasTensor,
  num_classes: int,
  *,
  conv: layers.Initializer | None = None,
  logits: layers.Initializer | None = None,
) -> keras.KerasTensor:
  """Builds the auxiliary classifier, on feature maps of 17x17 pixels.

  Args:
    make: makes the layers.
    x: feature maps [B, height, width, channels], at least 5x5 pixels.
    num_classes: number of logits.
    conv: initializer of its last convolution; None uses the net's.
    logits: initializer of its last layer; None uses the net's.

  Returns:
    Logits, float32 [B, num_classes].
  """
  begin: dict[str, Any] = {'initializer': conv} if conv else {}
  end: dict[str, Any] = {'initializer': logits} if logits else {}
  x = keras.layers.AveragePooling2D(
    5, strides=3, padding='valid', name='aux_avgpool_1a_5x5'
  )(x)
  x = make.conv(x, 'aux_conv2d_1b_1x1', 128, 1)
  x = make.conv(
    x,
    'aux_conv2d_2a_5x5',
    768,
    tuple(x.shape[1:3]),
    padding='valid',
    **begin,
  )
  x = keras.layers.Flatten(name='aux_flatten')(x)
  return make.logits(x, num_classes, 'aux_logits', **end)
