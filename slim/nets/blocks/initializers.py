"""First values of kernels, by name, in place of a net's own."""

from collections.abc import Callable

import keras

from slim import spelling
from slim.nets.blocks import layers

_KERNELS = ('kernel', 'depthwise_kernel', 'pointwise_kernel')


# Functions of the options.
INITIALIZERS: dict[str, Callable[..., layers.Initializer]] = {
  'he': lambda: layers.variance_scaling,
  'normal': layers.normal,
  'truncated_normal': layers.truncated_normal,
  'xavier': lambda: layers.xavier,
}


def parse(text: str) -> layers.Initializer:
  """The initializer that a text names.

  Args:
    text: a key of `INITIALIZERS`, with options or without:
      'normal:stddev=0.01'.

  Returns:
    A function of a seed.

  Raises:
    ValueError: unknown name or option, or a bad value.

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
      'Kernels of equal values learn the same.'
    )
  return made


def draw_kernels(
  model: keras.Model, initializer: layers.Initializer, seed: int
) -> None:
  """Gives all kernels of a model other first values.

  Args:
    model: built; its biases and all else stay.
    initializer: takes a seed.
    seed: kernels are drawn with seed + 1, + 2, ... in the order of the model's
      trainable variables.
  """
  kernels = [v for v in model.trainable_variables if v.name in _KERNELS]
  for number, kernel in enumerate(kernels, start=seed + 1):
    kernel.assign(initializer(number)(kernel.shape, kernel.dtype))
