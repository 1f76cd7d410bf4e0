"""Inner optimizers: what a worker does with the gradient of a local step.

Pure functions of a parameter, unlike the kernels of `step.optimizers`: nodes of
one device take turns, each from values of its own.
"""

from collections.abc import Callable
from typing import NamedTuple

from slim import spelling
from terngrad import lazy

# Names alone are asked for by --help, which does without TensorFlow.
tf = lazy.module('tensorflow')


class InnerOptimizer(NamedTuple):
  """An update rule of one parameter.

  Attributes:
    slots: tuple of names of arrays of the parameter's shape that it remembers
      from step to step; they begin at 0.
    apply: takes (value, slots, gradient, decay, learning_rate float32 [], count
      float32 []): tensors of one shape, `slots` a list of them and `decay` the
      gradient of the L2 term, None without one; `count` are the steps since the
      slots were 0, this one included. Returns (value, slots).
    stays: whether a worker keeps slots and count from one exchange to the next;
      otherwise they begin anew.
  """

  slots: tuple
  apply: Callable
  stays: bool


def momentum(momentum=0.0, stays=False):
  """Momentum, not Nesterov's: v = momentum * v + g; w -= rate * v.

  The gradient of the L2 term is part of g.

  Args:
    momentum: in [0, 1); 0 is plain descent, which remembers nothing.
    stays: see `InnerOptimizer`.

  Returns:
    An `InnerOptimizer`.

  Raises:
    ValueError: an argument is out of its range.
  """
  _check('momentum', momentum)

  def apply(value, slots, gradient, decay, learning_rate, count):
    del count
    if decay is not None:
      gradient = gradient + decay
    if slots:
      gradient = momentum * slots[0] + gradient
      slots = [gradient]
    return value - learning_rate * gradient, slots

  return InnerOptimizer(('velocity',) if momentum else (), apply, stays)


def adamw(beta1=0.9, beta2=0.999, epsilon=1e-8, stays=True):
  """AdamW: Adam with bias correction, and L2 terms apart from its moments.

  They take learning rate * decay off the parameter, as the decoupled decay of
  an update does.

  Args:
    beta1: decay of the first moment, in [0, 1).
    beta2: decay of the second moment, in [0, 1).
    epsilon: added to the root of the second moment.
    stays: see `InnerOptimizer`.

  Returns:
    An `InnerOptimizer`.

  Raises:
    ValueError: an argument is out of its range.

  References:
    Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019,
    https://arxiv.org/abs/1711.05101, algorithm 2, with a decay that is
    multiplied with the learning rate too.
  """
  _check('beta1', beta1)
  _check('beta2', beta2)

  def apply(value, slots, gradient, decay, learning_rate, count):
    first, second = slots
    first = beta1 * first + (1.0 - beta1) * gradient
    second = beta2 * second + (1.0 - beta2) * tf.square(gradient)
    change = _corrected(first, beta1, count) / (
      tf.sqrt(_corrected(second, beta2, count)) + epsilon
    )
    if decay is not None:
      change += decay
    return value - learning_rate * change, [first, second]

  return InnerOptimizer(('first_moment', 'second_moment'), apply, stays)


def _corrected(moment, beta, count):
  """A moment without the bias of its beginning at 0."""
  power = tf.cast(beta, tf.float64) ** tf.cast(count, tf.float64)
  return moment / tf.cast(1.0 - power, tf.float32)


def _check(name, value):
  if not 0 <= value < 1:
    raise ValueError(
      f'inner_optimizer: expected {name} in [0, 1), received {value}. Use 0.9.'
    )


# By the name that --inner_optimizer takes.
INNER_OPTIMIZERS = {'adamw': adamw, 'momentum': momentum}


def parse(text, momentum_flag):
  """The inner optimizer that a command line describes.

  Examples:
    >>> parse('adamw:beta2=0.99', 0.0).slots
    ('first_moment', 'second_moment')

  Args:
    text: 'NAME' or 'NAME:option=value,option=value', with a key of
      `INNER_OPTIMIZERS` and arguments of its function.
    momentum_flag: `momentum`, where the optimizer has one and the text does not
      say it.

  Returns:
    An `InnerOptimizer`.

  Raises:
    ValueError: unknown name or option, or a bad value; says what there is.
  """
  return spelling.make(
    'inner_optimizer', text, INNER_OPTIMIZERS, momentum=momentum_flag
  )
