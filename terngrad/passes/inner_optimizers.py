"""Inner optimizers, which update a worker's parameters in a local step.

They are pure functions, unlike the kernels of `step.optimizers`: the workers of
a device run one after the other, each with its local parameters.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from slim import spelling
from terngrad import lazy
from terngrad.step import optimizers

if TYPE_CHECKING:
  import tensorflow as tf
else:
  # --help needs only names; the lazy import spares it TensorFlow.
  tf = lazy.module('tensorflow')


class InnerOptimizer(abc.ABC):
  """The update rule of one parameter.

  Attributes:
    slots: names of the slots, arrays in the parameter's shape that start at 0.
    stays: True if slots and step count survive an exchange; False resets both
      to 0.
  """

  def __init__(self, slots: tuple[str, ...], stays: bool) -> None:
    """Stores the attributes."""
    self.slots = slots
    self.stays = stays

  @property
  def elementwise(self) -> InnerOptimizer:
    """The rule of embeddings and the last layer; it has the same slots."""
    return self

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
    """Computes the parameter after one step.

    Args:
      value: float32, the parameter.
      slots: float32 in the shape of `value`.
      gradient: float32 in the shape of `value`.
      decay: gradient of the L2 term, float32 in the shape of `value`; None
        without one.
      learning_rate: float32 [].
      count: float32 [], number of steps since the slots were 0, including this
        one.

    Returns:
      The new (value, slots).
    """


class InnerMomentum(InnerOptimizer):
  """Momentum, not Nesterov's: v = momentum * v + g; w -= rate * v.

  g includes the gradient of the L2 term.
  """

  def __init__(self, momentum: float = 0.0, stays: bool = False) -> None:
    """Takes the numbers of the rule.

    Args:
      momentum: in [0, 1); 0 is plain descent, without slots.
      stays: whether slots survive an exchange, see `InnerOptimizer`.

    Raises:
      ValueError: an argument is out of its range.
    """
    optimizers.check('inner_optimizer', '[0, 1)', momentum=momentum)
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
    """Computes the parameter after a step; see `InnerOptimizer.apply`."""
    del count
    if decay is not None:
      gradient = gradient + decay
    if slots:
      gradient = self._momentum * slots[0] + gradient
      slots = [gradient]
    return value - learning_rate * gradient, slots


class AdamW(InnerOptimizer):
  """AdamW: Adam with bias correction and decoupled weight decay.

  The decay subtracts learning rate * gradient of the L2 term from the
  parameter, as the decoupled decay of an update does.

  References:
    Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019,
    https://arxiv.org/abs/1711.05101, algorithm 2. Departure: the decay is
    multiplied by the learning rate too.
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
      epsilon: added to the square root of the second moment, > 0.
      stays: whether slots survive an exchange, see `InnerOptimizer`.

    Raises:
      ValueError: an argument is out of its range.
    """
    optimizers.check('inner_optimizer', '[0, 1)', beta1=beta1, beta2=beta2)
    optimizers.check('inner_optimizer', '(0, inf)', epsilon=epsilon)
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
    """Computes the parameter after a step; see `InnerOptimizer.apply`."""
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
  """Removes the bias of a moment that started at 0."""
  power = tf.cast(beta, tf.float64) ** tf.cast(count, tf.float64)
  return moment / tf.cast(1.0 - power, tf.float32)


# Classes by the name that --inner_optimizer takes, or their locations.
INNER_OPTIMIZERS: dict[str, type[InnerOptimizer] | str] = {
  'adamw': AdamW,
  'momentum': InnerMomentum,
  'muon': 'terngrad.passes.inner_muon:InnerMuon',
}


def parse(text: str, momentum_flag: float) -> InnerOptimizer:
  """Makes the optimizer that the value of --inner_optimizer describes.

  Examples:
    >>> parse('adamw:beta2=0.99', 0.0).slots
    ('first_moment', 'second_moment')

  Args:
    text: 'NAME' or 'NAME:option=value,option=value', with a key of
      `INNER_OPTIMIZERS` and arguments of its class.
    momentum_flag: the momentum of an optimizer that has one, unless the text
      sets it.

  Raises:
    ValueError: unknown name or option, or a bad value; lists the known ones.
  """
  return spelling.make(
    'inner_optimizer', text, INNER_OPTIMIZERS, momentum=momentum_flag
  )
