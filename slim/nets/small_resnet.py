"""Residual networks of pairs of 3x3 layers, for small images.

`small_resnet_18` is the net of Dive into Deep Learning; `cifar_resnet_20` and
the deeper ones are those of He et al. for CIFAR-10. The first unit of every
block except the first halves the image.

Departures: layers with batch normalization have no bias, which normalization
would remove. If a unit of the CIFAR nets changes the shape, its shortcut is a
normalized 1x1 layer (the paper's option B; its results are of option A, which
pads with zeros).

References:
  He et al., Deep Residual Learning for Image Recognition, section 4.2,
  https://arxiv.org/abs/1512.03385.
  Zhang et al., Dive into Deep Learning, section 8.6, https://d2l.ai.
"""

from typing import Any
from typing import NamedTuple

import keras

from slim.nets.blocks import layers

BATCH_NORM = layers.BatchNorm(decay=0.9, epsilon=1e-5, scale=True)
CIFAR_DEPTHS = (20, 32, 56)


class Architecture(NamedTuple):
  """The architecture of one of these nets.

  Attributes:
    name: name of the model.
    units: number of units in each block.
    widths: channels of each block; the first layer has those of the first.
    initializer: takes a seed, returns the initializer of a kernel.
    normalized_shortcuts: False for 1x1 shortcuts with a bias and without
      normalization.
  """

  name: str
  units: int
  widths: tuple[int, ...]
  initializer: layers.Initializer
  normalized_shortcuts: bool


RESNET_18 = Architecture(
  'small_resnet_18', 2, (64, 128, 256, 512), layers.normal(0.01), False
)


def cifar_architecture(depth: int) -> Architecture:
  """Returns the plan of the net for CIFAR-10 with `depth` = 6 n + 2 layers."""
  return Architecture(
    f'cifar_resnet_{depth}',
    (depth - 2) // 6,
    (16, 32, 64),
    layers.variance_scaling,
    normalized_shortcuts=True,
  )


def build(
  architecture: Architecture,
  num_classes: int,
  *,
  image_size: int = 32,
  channels: int = 3,
  weight_decay: float = 0.0001,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
) -> keras.Model:
  """Builds a residual network for small images.

  Trainable parameters at 10 classes: 11,171,914 for small_resnet_18 with images
  of one channel; with three channels, 272,474 for 20 layers, 466,906 for 32 and
  855,770 for 56.

  Args:
    architecture: `RESNET_18` or from `cifar_architecture`.
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 1.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel w, never for biases, beta and gamma; 0 adds nothing.
    dropout_keep_prob: not used, because these nets have no dropout.
    seed: kernels use seeds seed + 1, + 2, ... in the order of the layers.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes] under any precision policy.
  """
  del dropout_keep_prob
  make = layers.Layers(
    layers.Style(architecture.initializer, weight_decay, BATCH_NORM), seed
  )
  images = keras.Input((image_size, image_size, channels), name='images')
  x = make.conv(images, 'conv1', architecture.widths[0], 3)
  for block, width in enumerate(architecture.widths, start=1):
    for i in range(1, architecture.units + 1):
      strides = 2 if block > 1 and i == 1 else 1
      x = _unit(make, architecture, x, f'block{block}_unit_{i}', width, strides)
  x = keras.layers.GlobalAveragePooling2D(name='pool')(x)
  logits = make.logits(x, num_classes)
  return keras.Model(images, logits, name=architecture.name)


def _unit(
  make: layers.Layers,
  architecture: Architecture,
  x: keras.KerasTensor,
  name: str,
  width: int,
  strides: int,
) -> keras.KerasTensor:
  """Applies relu(shortcut + two normalized 3x3 layers)."""
  shortcut = x
  if strides > 1 or x.shape[-1] != width:
    changes: dict[str, Any] = (
      {} if architecture.normalized_shortcuts else {'batch_norm': None}
    )
    shortcut = make.conv(
      *(x, f'{name}_shortcut', width, 1),
      strides=strides,
      activation=None,
      **changes,
    )
  x = (
    layers.LayerChain(x)
    .then(make.conv, f'{name}_conv1', width, 3, strides=strides)
    .then(make.conv, f'{name}_conv2', width, 3, activation=None)
    .x
  )
  x = keras.layers.Add(name=f'{name}_sum')([shortcut, x])
  return keras.layers.Activation('relu', name=f'{name}_act')(x)
