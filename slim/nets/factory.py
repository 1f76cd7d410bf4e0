"""Nets by name.

A plain name is the net that the 2017 trainers built of that name; where the
TF-Slim library's net of the same name is another one, that has the prefix
`slim_`. `of_slim` takes a name of that library.

To add a net: one module with a `build` like `slim.nets.lenet.build`, one entry
in `NETS`.
"""

from collections import abc
from typing import Any
from typing import NamedTuple

import keras

from slim import errors
from slim.nets import cifar10_alexnet
from slim.nets import lenet


class Net(NamedTuple):
  """What can be built, and what its authors trained it with.

  Attributes:
    build: (num_classes, image_size, channels, weight_decay, dropout_keep_prob,
      seed), all by name, to a keras.Model that returns logits; where
      `auxiliary_weight` > 0 the list [logits, auxiliary logits], in training
      and out of it: see `logits_of`.
    default_image_size: height and width in pixels the net was designed for.
    default_channels: channels of the images it was designed for.
    weight_decay: factor of sum(w**2) / 2.
    dropout_keep_prob: share of the units that dropout keeps, in (0, 1].
    auxiliary_weight: factor of the auxiliary logits' loss; 0 for a net without.
    label_smoothing: share of the label that is spread over all classes.
    preprocessing: the name in `slim.preprocessing.factory` that TF-Slim's
      trainer chose for the net; '' where it chose none.
  """

  build: abc.Callable[..., keras.Model]
  default_image_size: int
  default_channels: int = 3
  weight_decay: float = 0.0005
  dropout_keep_prob: float = 0.5
  auxiliary_weight: float = 0.0
  label_smoothing: float = 0.0
  preprocessing: str = ''


NETS: dict[str, Net] = {
  'cifar10_alexnet': Net(
    cifar10_alexnet.build, default_image_size=24, weight_decay=0.004
  ),
  'lenet': Net(lenet.build, default_image_size=28, default_channels=1),
}


def build(
  name: str,
  *,
  num_classes: int,
  image_size: int | None = None,
  channels: int | None = None,
  weight_decay: float | None = None,
  dropout_keep_prob: float | None = None,
  seed: int = 1,
) -> keras.Model:
  """Builds a net by name.

  Args:
    name: a key of `NETS`.
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels; None for the net's own.
    channels: channels of the input; None for the net's own.
    weight_decay: factor of sum(w**2) / 2 over kernels in the model's losses;
      None for the net's own.
    dropout_keep_prob: share of the units that dropout keeps, in (0, 1]; None
      for the net's own.
    seed: of all initial weights and, where the net has it, of dropout.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes], or to a list of two of them; see `Net.build`.

  Raises:
    slim.errors.UnknownNameError: no such net.
  """
  net = errors.lookup(NETS, name, 'net')
  return net.build(
    num_classes=num_classes,
    image_size=image_size or net.default_image_size,
    channels=channels or net.default_channels,
    weight_decay=net.weight_decay if weight_decay is None else weight_decay,
    dropout_keep_prob=dropout_keep_prob or net.dropout_keep_prob,
    seed=seed,
  )


def logits_of(outputs: Any) -> Any:
  """The logits among what a net returned, with or without auxiliary ones."""
  return outputs[0] if isinstance(outputs, list) else outputs
