"""Kernel initializers by name, which replace those of a net."""

from collections.abc import Callable

import keras

from slim import spelling
from slim.nets.blocks import layers

_KERNELS = ('kernel', 'depthwise_kernel', 'pointwise_kernel')


# Functions that take the options of an initializer.
INITIALIZERS: dict[str, Callable[..., layers.Initializer]] = {
  'he': lambda: layers.variance_scaling,
  'normal': layers.normal,
  'truncated_normal': layers.truncated_normal,
  'xavier': lambda: layers.xavier,
}


def parse(text: str) -> layers.Initializer:
  """Returns the initializer named in a text.

  Args:
    text: a key of `INITIALIZERS`, with or without options:
      'normal:stddev=0.01'.

  Returns:
    A function of a seed.

  Raises:
    ValueError: a name or an option is unknown, or a value is invalid.

  References:
    Glorot and Bengio, Understanding the difficulty of training deep feedforward
    neural networks, AISTATS 2010 (xavier).
    He et al., Delving Deep into Rectifiers, https://arxiv.org/abs/1502.01852,
    section 2.2 (he).
  """
  made: layers.Initializer = spelling.make(
    'initializer', text, INITIALIZERS, numbers=True
  )
  deviation = made(0).get_config().get('stddev', 1.0)
  if not 0 < deviation < float('inf'):
    raise ValueError(
      f'initializer: expected a finite stddev above 0, received {text!r}. '
      'Filters that start with equal values stay equal.'
    )
  return made


def draw_kernels(
  model: keras.Model, initializer: layers.Initializer, seed: int
) -> None:
  """Initializes all kernels of a model again.

  Args:
    model: a built model; its other variables are not changed.
    initializer: takes a seed.
    seed: kernels use seeds seed + 1, + 2, ... in the order of the model's
      trainable variables.
  """
  kernels = [v for v in model.trainable_variables if v.name in _KERNELS]
  for number, kernel in enumerate(kernels, start=seed + 1):
    kernel.assign(initializer(number)(kernel.shape, kernel.dtype))
