"""Makes the layers of a net in one style.

A net's `Style` defines how its convolutions are initialized, normalized,
activated and regularized; `Layers` makes them, each with the next seed.
"""

import itertools
from collections import abc
from typing import Any
from typing import Concatenate
from typing import NamedTuple
from typing import ParamSpec

import keras

# Height and width of a kernel, or one number for both.
Size = int | tuple[int, int]
# A function of a seed.
Initializer = abc.Callable[[int], keras.initializers.Initializer]


class BatchNorm(NamedTuple):
  """Batch normalization after a convolution, in place of its bias.

  Attributes:
    decay: decay of the moving statistics, in (0, 1).
    epsilon: added to the variance.
    scale: whether there is a gamma; there is always a beta.
  """

  decay: float
  epsilon: float
  scale: bool = False


def xavier(seed: int) -> keras.initializers.Initializer:
  """Returns a uniform initializer of variance 2 / (fan in + fan out).

  TF-Slim's default.
  """
  return keras.initializers.GlorotUniform(seed=seed)


def variance_scaling(seed: int) -> keras.initializers.Initializer:
  """Returns a truncated normal initializer of variance 2 / fan in.

  TF-Slim's `variance_scaling_initializer` compensates the truncation with a
  rounded factor, 1.3 instead of 1.2925, so its deviations are 0.3 % larger.
  """
  return keras.initializers.HeNormal(seed=seed)


def normal(stddev: float = 0.01) -> Initializer:
  """Returns a normal initializer, a function of a seed."""
  return lambda seed: keras.initializers.RandomNormal(stddev=stddev, seed=seed)


def truncated_normal(stddev: float = 0.01) -> Initializer:
  """Returns a normal initializer that is truncated at two deviations."""
  return lambda seed: keras.initializers.TruncatedNormal(
    stddev=stddev, seed=seed
  )


class Style(NamedTuple):
  """How a net makes its convolutions and dense layers.

  Attributes:
    initializer: takes a seed, returns the initializer of a kernel.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel w; 0 adds nothing.
    batch_norm: batch normalization of convolutions, which then have no bias;
      None for no normalization. Dense layers have a bias.
    biased: whether normalized convolutions have a bias nevertheless.
    bias: initial value of biases.
    bias_decay: whether weight decay includes biases.
    activation: 'relu', or None.
  """

  initializer: Initializer
  weight_decay: float
  batch_norm: BatchNorm | None = None
  biased: bool = False
  bias: float = 0.0
  bias_decay: bool = False
  activation: str | None = 'relu'


_Parameters = ParamSpec('_Parameters')


class LayerChain(NamedTuple):
  """Layers in sequence: `LayerChain(x).then(...).then(...).x`.

  Attributes:
    x: output of the last layer.
  """

  x: keras.KerasTensor

  def then(
    self,
    layer: abc.Callable[
      Concatenate[keras.KerasTensor, _Parameters], keras.KerasTensor
    ],
    *arguments: _Parameters.args,
    **options: _Parameters.kwargs,
  ) -> 'LayerChain':
    """Appends `layer(x, *arguments, **options)`."""
    return LayerChain(layer(self.x, *arguments, **options))


class Layers:
  """Makes layers of one style and applies them.

  Each layer with a kernel uses the next seed, starting at seed + 1. Dropouts
  have a separate count, starting at seed + 1 as well. `changes` replace fields
  of `Style` for one layer.
  """

  def __init__(self, style: Style, seed: int):
    """Sets the style and the seed from which layers count."""
    self._style = style
    self._kernel_seeds = itertools.count(seed + 1)
    self._dropout_seeds = itertools.count(seed + 1)

  def conv(
    self,
    x: keras.KerasTensor,
    /,
    name: str,
    filters: int,
    size: Size,
    *,
    strides: int = 1,
    padding: str = 'same',
    **changes: Any,
  ) -> keras.KerasTensor:
    """Applies a convolution, its normalization `<name>_bn` and activation."""
    style = self._style._replace(**changes)
    x = keras.layers.Conv2D(
      filters,
      size,
      strides=strides,
      padding=padding,
      name=name,
      activation=None if style.batch_norm else style.activation,
      **self._weights(style, bool(style.batch_norm)),
    )(x)
    return self.normalize(x, name, **changes) if style.batch_norm else x

  def conv_same(
    self,
    x: keras.KerasTensor,
    /,
    name: str,
    filters: int,
    size: int,
    strides: int,
    **changes: Any,
  ) -> keras.KerasTensor:
    """Applies a convolution whose padding does not depend on the image size.

    For strides of 2 on even sizes, 'same' padding would start one pixel later.
    """
    if strides == 1:
      return self.conv(x, name, filters, size, **changes)
    before = (size - 1) // 2
    sides = (before, size - 1 - before)
    x = keras.layers.ZeroPadding2D((sides, sides), name=f'{name}_padding')(x)
    return self.conv(
      x, name, filters, size, strides=strides, padding='valid', **changes
    )

  def conv_full(
    self,
    x: keras.KerasTensor,
    /,
    name: str,
    filters: int,
    max_size: int,
    **changes: Any,
  ) -> keras.KerasTensor:
    """Applies a kernel of the input's size, at most `max_size`."""
    size = min(max_size, x.shape[1])
    return self.conv(x, name, filters, size, padding='valid', **changes)

  def normalize(
    self, x: keras.KerasTensor, /, name: str, **changes: Any
  ) -> keras.KerasTensor:
    """Applies batch normalization `<name>_bn`, if any, and activation."""
    style = self._style._replace(**changes)
    if style.batch_norm:
      momentum, epsilon, scale = style.batch_norm
      x = keras.layers.BatchNormalization(
        momentum=momentum, epsilon=epsilon, scale=scale, name=f'{name}_bn'
      )(x)
    if style.activation is None:
      return x
    return keras.layers.Activation(style.activation, name=f'{name}_act')(x)

  def dense(
    self, x: keras.KerasTensor, /, name: str, units: int, **changes: Any
  ) -> keras.KerasTensor:
    """Applies a dense layer with the style's activation."""
    style = self._style._replace(**changes)
    return keras.layers.Dense(
      units,
      activation=style.activation,
      name=name,
      **self._weights(style, False),
    )(x)

  def logits(
    self,
    x: keras.KerasTensor,
    /,
    num_classes: int,
    name: str = 'logits',
    **changes: Any,
  ) -> keras.KerasTensor:
    """Applies a classifier; returns logits, float32 [B, num_classes].

    The dtype does not depend on the precision policy.

    The input is [B, features], or [B, height, width, features]; for the latter,
    logits are the mean over all positions.
    """
    style = self._style._replace(**{'activation': None, **changes})
    options = {
      'name': name,
      'dtype': 'float32',
      **self._weights(style, False),
    }
    if len(x.shape) == 2:
      return keras.layers.Dense(num_classes, **options)(x)
    x = keras.layers.Conv2D(num_classes, 1, **options)(x)
    return keras.layers.GlobalAveragePooling2D(
      name=f'{name}_mean', dtype='float32'
    )(x)

  def dropout(
    self, x: keras.KerasTensor, /, name: str, keep: float
  ) -> keras.KerasTensor:
    """Applies dropout that keeps a fraction `keep`, in (0, 1], of the units."""
    return keras.layers.Dropout(
      1 - keep, seed=next(self._dropout_seeds), name=name
    )(x)

  def _weights(self, style: Style, normalized: bool) -> dict[str, Any]:
    """Returns the keyword arguments of a layer's weights; takes a seed."""
    decay = (
      keras.regularizers.L2(style.weight_decay / 2)
      if style.weight_decay
      else None
    )
    return {
      'kernel_initializer': style.initializer(next(self._kernel_seeds)),
      'kernel_regularizer': decay,
      'use_bias': style.biased or not normalized,
      'bias_initializer': keras.initializers.Constant(style.bias),
      'bias_regularizer': decay if style.bias_decay else None,
    }


def max_pool(
  x: keras.KerasTensor,
  /,
  name: str,
  size: int,
  strides: int,
  padding: str = 'same',
) -> keras.KerasTensor:
  """Applies maximum pooling; `size` and `strides` in pixels."""
  return keras.layers.MaxPooling2D(
    size, strides=strides, padding=padding, name=name
  )(x)
