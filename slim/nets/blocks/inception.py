"""The blocks that the Inception nets are made of.

A block's branches all see its input; their channels are put side by side. A
branch is a list of steps: `Conv`, `Pool`, or a tuple of `Conv`s that all see
the step before and are put side by side.
"""

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
  size: int | tuple[int, int] = 1
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
Branch = list[Step]


def mixed(make, x, name: str, branches: list[Branch], padding: str = 'same'):
  """One block.

  Layers are named for their place, `<name>_branch_1_conv2d_0b_3x3`: the second
  step of the second branch, a 3x3 convolution; 1a, 1b, ... where a step makes
  the image smaller.

  Args:
    make: a `layers.Layers`.
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


def _branch(make, x, name, steps, padding):
  letters = {'0': iter('abcdefgh'), '1': iter('abcdefgh')}

  def apply(x, step):
    edge = _edge(step, padding)
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


def _edge(step, padding):
  if isinstance(step, Conv) and step.valid:
    return 'valid'
  return padding if step.strides > 1 else 'same'


def _pool(x, name, step, padding):
  kinds = {
    'avg': keras.layers.AveragePooling2D,
    'max': keras.layers.MaxPooling2D,
  }
  layer = kinds[step.kind](3, strides=step.strides, padding=padding, name=name)
  return layer(x)


def _conv(make, x, name, step, padding):
  height, width = (
    step.size if isinstance(step.size, tuple) else (step.size, step.size)
  )
  changes = {}
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


def head(make, x, num_classes: int, keep: float, **changes):
  """Global average, dropout and logits, of images of any size."""
  x = keras.layers.GlobalAveragePooling2D(name='logits_avgpool')(x)
  x = make.dropout(x, 'logits_dropout', keep)
  return make.logits(x, num_classes, **changes)


def auxiliary_head(make, x, num_classes: int, **initializers):
  """The classifier beside the net, of its images of 17x17 pixels.

  Args:
    make: a `layers.Layers`.
    x: images [B, height, width, channels], of at least 5x5 pixels.
    num_classes: number of logits.
    **initializers: of its last two layers, `conv` and `logits`, where not the
      net's own.

  Returns:
    Logits, float32 [B, num_classes].
  """
  changes = {name: {'initializer': i} for name, i in initializers.items()}
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
    **changes.get('conv', {}),
  )
  x = keras.layers.Flatten(name='aux_flatten')(x)
  return make.logits(x, num_classes, 'aux_logits', **changes.get('logits', {}))
