"""Nets by name.

To add a net: one module with a `build` like `slim.nets.lenet.build`, one entry
in `NETS`.
"""

from collections import abc
from typing import NamedTuple

import keras

from slim import errors
from slim.nets import cifar10_alexnet
from slim.nets import lenet


class Net(NamedTuple):
  """What can be built.

  Attributes:
    build: (num_classes, image_size, channels, weight_decay, dropout_keep_prob,
      seed), all by name, to a keras.Model that returns logits.
    default_image_size: height and width in pixels the net was designed for.
    default_channels: channels of the images it was designed for.
  """

  build: abc.Callable[..., keras.Model]
  default_image_size: int
  default_channels: int


NETS: dict[str, Net] = {
  'cifar10_alexnet': Net(
    cifar10_alexnet.build, default_image_size=24, default_channels=3
  ),
  'lenet': Net(lenet.build, default_image_size=28, default_channels=1),
}


def build(
  name: str,
  *,
  num_classes: int,
  image_size: int | None = None,
  channels: int | None = None,
  weight_decay: float = 0.0005,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
) -> keras.Model:
  """Builds a net by name.

  Args:
    name: a key of `NETS`.
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels; None for the net's own.
    channels: channels of the input; None for the net's own.
    weight_decay: factor of sum(w**2) / 2 over kernels in the model's losses.
    dropout_keep_prob: share of the units that dropout keeps, in (0, 1].
    seed: of all initial weights and, where the net has it, of dropout.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes].

  Raises:
    slim.errors.UnknownNameError: no such net.
  """
  net = errors.lookup(NETS, name, 'net')
  return net.build(
    num_classes=num_classes,
    image_size=image_size or net.default_image_size,
    channels=channels or net.default_channels,
    weight_decay=weight_decay,
    dropout_keep_prob=dropout_keep_prob,
    seed=seed,
  )
