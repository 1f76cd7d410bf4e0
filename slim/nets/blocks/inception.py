"""The blocks that the Inception nets are made of.

A block's branches all see its input; their channels are put side by side. A
branch is a list of steps: `Conv`, `Pool`, or a tuple of `Conv`s that all see
the step before and are put side by side.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras

from slim.nets.blocks import layers


class Conv(NamedTuple):
  """A convolution of a branch.

  Attributes:
    filters: channels it makes.
    size: of the kernel: height and width, or one number for both.
    strides: 1 or 2.
    valid: whether it is not padded though it has strides of 1.
    stddev: of the truncated normal that its kernel begins with; None for the
      net's own initializer.
  """

  filters: int
  size: layers.Size = 1
  strides: int = 1
  valid: bool = False
  stddev: float | None = None


class Pool(NamedTuple):
  """A pooling of 3x3 pixels.

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
  """One block.

  Layers are named for their place, `<name>_branch_1_conv2d_0b_3x3`: the second
  step of the second branch, a 3x3 convolution; 1a, 1b, ... where a step makes
  the image smaller.

  Args:
    make: makes the layers.
    x: images, [B, height, width, channels].
    name: of the block.
    branches: its branches.
    padding: of steps with strides of 2, 'same' or 'valid'.

  Returns:
    The branches' outputs, side by side.
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
    edge = padding if step.strides > 1 else 'same'
    if isinstance(step, Conv) and step.valid:
      edge = 'valid'
    digit = '1' if step.strides > 1 or edge == 'valid' else '0'
    place = f'{digit}{next(letters[digit])}'
    if isinstance(step, Pool):
      return _pool(x, f'{name}_{step.kind}pool_{place}_3x3', step, edge)
    return _conv(make, x, f'{name}_conv2d_{place}', step, edge)

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
  """From 299x299 to 35x35 pixels: of Inception v3, and of Inception-ResNet."""
  return (
    layers.Chain(x)
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
  """Global average, dropout and logits, of images of any size."""
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
  """The classifier beside the net, of its images of 17x17 pixels.

  Args:
    make: makes the layers.
    x: images [B, height, width, channels], of at least 5x5 pixels.
    num_classes: number of logits.
    conv: begins its last convolution; None for the net's own initializer.
    logits: begins its last layer; None for the net's own.

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
