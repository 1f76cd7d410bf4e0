"""Inner optimizers: what a worker does with the gradient of a local step.

Pure functions of a parameter, unlike the kernels of `step.optimizers`: nodes of
one device take turns, each from values of its own.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from slim import spelling
from terngrad import lazy

if TYPE_CHECKING:
  import tensorflow as tf
else:
  # Names alone are asked for by --help, which does without TensorFlow.
  tf = lazy.module('tensorflow')


class InnerOptimizer(abc.ABC):
  """An update rule of one parameter.

  Attributes:
    slots: names of arrays of the parameter's shape that it remembers from step
      to step; they begin at 0.
    stays: whether a worker keeps slots and count from one exchange to the next;
      otherwise they begin anew.
  """

  def __init__(self, slots: tuple[str, ...], stays: bool) -> None:
    """Takes what all rules have; see the class."""
    self.slots = slots
    self.stays = stays

  @abc.abstractmethod
  def apply(
    self,
    value: tf.Tensor,
    slots: list[tf.Tensor],
    gradient: tf.Tensor,
    decay: tf.Tensor | None,
    learning_rate: tf.Tensor,
    count: tf.Tensor,
  ) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Takes a step.

    Args:
      value: of the parameter, float32.
      slots: of the value's shape.
      gradient: likewise.
      decay: the gradient of the L2 term, likewise; None without one.
      learning_rate: float32 [].
      count: float32 [], steps since the slots were 0, this one included.

    Returns:
      (value, slots) after it.
    """


class Momentum(InnerOptimizer):
  """Momentum, not Nesterov's: v = momentum * v + g; w -= rate * v.

  The gradient of the L2 term is part of g.
  """

  def __init__(self, momentum: float = 0.0, stays: bool = False) -> None:
    """Takes the factor.

    Args:
      momentum: in [0, 1); 0 is plain descent, which remembers nothing.
      stays: see `InnerOptimizer`.

    Raises:
      ValueError: an argument is out of its range.
    """
    _check('momentum', momentum)
    super().__init__(('velocity',) if momentum else (), stays)
    self._momentum = momentum

  def apply(
    self,
    value: tf.Tensor,
    slots: list[tf.Tensor],
    gradient: tf.Tensor,
    decay: tf.Tensor | None,
    learning_rate: tf.Tensor,
    count: tf.Tensor,
  ) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """See `InnerOptimizer.apply`."""
    del count
    if decay is not None:
      gradient = gradient + decay
    if slots:
      gradient = self._momentum * slots[0] + gradient
      slots = [gradient]
    return value - learning_rate * gradient, slots


class AdamW(InnerOptimizer):
  """AdamW: Adam with bias correction, and L2 terms apart from its moments.

  They take learning rate * decay off the parameter, as the decoupled decay of
  an update does.

  References:
    Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019,
    https://arxiv.org/abs/1711.05101, algorithm 2, with a decay that is
    multiplied with the learning rate too.
  """

  def __init__(
    self,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    stays: bool = True,
  ) -> None:
    """Takes the numbers of the algorithm.

    Args:
      beta1: decay of the first moment, in [0, 1).
      beta2: decay of the second moment, in [0, 1).
      epsilon: added to the root of the second moment.
      stays: see `InnerOptimizer`.

    Raises:
      ValueError: an argument is out of its range.
    """
    _check('beta1', beta1)
    _check('beta2', beta2)
    super().__init__(('first_moment', 'second_moment'), stays)
    self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon

  def apply(
    self,
    value: tf.Tensor,
    slots: list[tf.Tensor],
    gradient: tf.Tensor,
    decay: tf.Tensor | None,
    learning_rate: tf.Tensor,
    count: tf.Tensor,
  ) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """See `InnerOptimizer.apply`."""
    beta1, beta2 = self._beta1, self._beta2
    first, second = slots
    first = beta1 * first + (1.0 - beta1) * gradient
    second = beta2 * second + (1.0 - beta2) * tf.square(gradient)
    change = _corrected(first, beta1, count) / (
      tf.sqrt(_corrected(second, beta2, count)) + self._epsilon
    )
    if decay is not None:
      change += decay
    return value - learning_rate * change, [first, second]


def _corrected(moment: tf.Tensor, beta: float, count: tf.Tensor) -> tf.Tensor:
  """A moment without the bias of its beginning at 0."""
  power = tf.cast(beta, tf.float64) ** tf.cast(count, tf.float64)
  return moment / tf.cast(1.0 - power, tf.float32)


def _check(name: str, value: float) -> None:
  if not 0 <= value < 1:
    raise ValueError(
      f'inner_optimizer: expected {name} in [0, 1), received {value}. Use 0.9.'
    )


# By the name that --inner_optimizer takes.
INNER_OPTIMIZERS = {'adamw': AdamW, 'momentum': Momentum}


def parse(text: str, momentum_flag: float) -> InnerOptimizer:
  """The inner optimizer that a command line describes.

  Examples:
    >>> parse('adamw:beta2=0.99', 0.0).slots
    ('first_moment', 'second_moment')

  Args:
    text: 'NAME' or 'NAME:option=value,option=value', with a key of
      `INNER_OPTIMIZERS` and arguments of its class.
    momentum_flag: `momentum`, where the optimizer has one and the text does not
      say it.

  Raises:
    ValueError: unknown name or option, or a bad value; says what there is.
  """
  return spelling.make(
    'inner_optimizer', text, INNER_OPTIMIZERS, momentum=momentum_flag
  )
