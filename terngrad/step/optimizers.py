"""Optimizers with the 2017 code's constants, on TensorFlow's own kernels.

The kernels are those that TensorFlow 1's optimizers called. Keras's optimizers
differ: their momentum holds the learning rate inside the velocity, and their
RMSProp starts its mean square at 0 and not at 1.
"""

from __future__ import annotations

import abc
import copy
from typing import TYPE_CHECKING
from typing import NamedTuple

from slim import spelling
from terngrad import lazy

if TYPE_CHECKING:
  import tensorflow as tf
else:
  # Names alone are asked for by --help, which does without TensorFlow.
  tf = lazy.module('tensorflow')

# The slot of `Momentum`.
MOMENTUM = 'momentum'


class Optimizer(abc.ABC):
  """An update rule; its text has all its numbers.

  Attributes:
    slots: for each slot's name the value that it starts from.
    kernel_momentum: the factor of `Momentum`, 0 for `GradientDescent`; None for
      rules that kernels do not know.
    clip_norm: gradients are scaled down together to this norm before; 0 for
      any norm.
  """

  def __init__(
    self, slots: dict[str, float], kernel_momentum: float | None = None
  ) -> None:
    """Takes what all rules have; see the class."""
    self.slots = slots
    self.kernel_momentum = kernel_momentum
    self.clip_norm = 0.0

  def __repr__(self) -> str:
    """The rule and its numbers."""
    return f'{type(self).__name__}({vars(self)})'

  def clipped(self, clip_norm: float) -> Optimizer:
    """The same rule with another `clip_norm`."""
    made = copy.copy(self)
    made.clip_norm = clip_norm
    return made

  def apply(
    self,
    variable: tf.Variable,
    slots: dict[str, tf.Variable],
    gradient: tf.Tensor,
    learning_rate: tf.Tensor,
    step: tf.Tensor,
  ) -> None:
    """Updates a variable and its slots in place.

    Args:
      variable: float32.
      slots: by name, of the variable's shape.
      gradient: likewise.
      learning_rate: float32 [].
      step: int64 [], the steps taken before this one.
    """
    handles = {name: slot.handle for name, slot in slots.items()}
    self._apply(
      _Operands(variable.handle, handles, gradient, learning_rate, step)
    )

  @abc.abstractmethod
  def _apply(self, on: _Operands) -> None:
    """Calls TensorFlow's operation."""


class _Operands(NamedTuple):
  """What an operation takes; see `Optimizer.apply`."""

  variable: tf.Tensor
  slots: dict[str, tf.Tensor]
  gradient: tf.Tensor
  rate: tf.Tensor
  step: tf.Tensor


class GradientDescent(Optimizer):
  """Plain descent: w -= rate * g."""

  def __init__(self) -> None:
    """Has no options."""
    super().__init__({}, 0.0)

  def _apply(self, on: _Operands) -> None:
    tf.raw_ops.ResourceApplyGradientDescent(
      var=on.variable, alpha=on.rate, delta=on.gradient
    )


class Momentum(Optimizer):
  """Momentum, not Nesterov's: v = momentum * v + g; w -= rate * v."""

  _is_nesterov = False

  def __init__(self, momentum: float = 0.9) -> None:
    """Takes the factor, in [0, 1)."""
    super().__init__({MOMENTUM: 0.0}, None if self._is_nesterov else momentum)
    self._momentum = momentum

  def _apply(self, on: _Operands) -> None:
    tf.raw_ops.ResourceApplyMomentum(
      var=on.variable,
      accum=on.slots[MOMENTUM],
      lr=on.rate,
      grad=on.gradient,
      momentum=self._momentum,
      use_nesterov=self._is_nesterov,
    )


class Nesterov(Momentum):
  """Nesterov's: v = momentum * v + g; w -= rate * (g + momentum * v)."""

  _is_nesterov = True


class Adam(Optimizer):
  """Adam, with its powers taken from the step and not kept in variables.

  References:
    Kingma and Ba, Adam, https://arxiv.org/abs/1412.6980, the formulation just
    before section 2.1.
  """

  def __init__(
    self, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
  ) -> None:
    """Takes decays of both moments, and what is added to the second's root."""
    super().__init__({'first_moment': 0.0, 'second_moment': 0.0})
    self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon

  def _apply(self, on: _Operands) -> None:
    count = tf.cast(on.step + 1, tf.float64)
    tf.raw_ops.ResourceApplyAdam(
      var=on.variable,
      m=on.slots['first_moment'],
      v=on.slots['second_moment'],
      beta1_power=tf.cast(self._beta1**count, tf.float32),
      beta2_power=tf.cast(self._beta2**count, tf.float32),
      lr=on.rate,
      beta1=self._beta1,
      beta2=self._beta2,
      epsilon=self._epsilon,
      grad=on.gradient,
    )


class RMSProp(Optimizer):
  """RMSProp with momentum; the mean square starts at 1.

  s = decay * s + (1 - decay) * g**2; v = momentum * v + rate * g / sqrt(s +
  epsilon); w -= v.
  """

  def __init__(
    self, momentum: float = 0.9, decay: float = 0.9, epsilon: float = 1.0
  ) -> None:
    """Takes the numbers of the formulas, momentum in [0, 1)."""
    super().__init__({'mean_square': 1.0, MOMENTUM: 0.0})
    self._momentum, self._decay, self._epsilon = momentum, decay, epsilon

  def _apply(self, on: _Operands) -> None:
    tf.raw_ops.ResourceApplyRMSProp(
      var=on.variable,
      ms=on.slots['mean_square'],
      mom=on.slots[MOMENTUM],
      lr=on.rate,
      grad=on.gradient,
      rho=self._decay,
      momentum=self._momentum,
      epsilon=self._epsilon,
    )


class Adadelta(Optimizer):
  """Adadelta.

  References:
    Zeiler, ADADELTA, https://arxiv.org/abs/1212.5701, algorithm 1.
  """

  def __init__(self, rho: float = 0.95, epsilon: float = 1.0) -> None:
    """Takes the decay of both means, and what is added to them."""
    super().__init__({'mean_square': 0.0, 'mean_square_update': 0.0})
    self._rho, self._epsilon = rho, epsilon

  def _apply(self, on: _Operands) -> None:
    tf.raw_ops.ResourceApplyAdadelta(
      var=on.variable,
      accum=on.slots['mean_square'],
      accum_update=on.slots['mean_square_update'],
      lr=on.rate,
      grad=on.gradient,
      rho=self._rho,
      epsilon=self._epsilon,
    )


class Adagrad(Optimizer):
  """Adagrad: s += g**2; w -= rate * g / sqrt(s)."""

  def __init__(self, initial: float = 0.1) -> None:
    """Takes what s starts from, > 0."""
    super().__init__({'square_sum': initial})

  def _apply(self, on: _Operands) -> None:
    tf.raw_ops.ResourceApplyAdagrad(
      var=on.variable,
      accum=on.slots['square_sum'],
      lr=on.rate,
      grad=on.gradient,
    )


class Ftrl(Optimizer):
  """FTRL-Proximal.

  References:
    McMahan et al., Ad Click Prediction, KDD 2013, algorithm 1.
  """

  def __init__(
    self,
    power: float = -0.5,
    initial: float = 0.1,
    l1: float = 0.0,
    l2: float = 0.0,
  ) -> None:
    """Takes the numbers of the rule.

    Args:
      power: of the accumulator in the learning rate, <= 0.
      initial: what the accumulator starts from, >= 0.
      l1: strength of the L1 term, >= 0.
      l2: strength of the L2 term, >= 0.
    """
    super().__init__({'square_sum': initial, 'linear': 0.0})
    self._power, self._l1, self._l2 = power, l1, l2

  def _apply(self, on: _Operands) -> None:
    tf.raw_ops.ResourceApplyFtrl(
      var=on.variable,
      accum=on.slots['square_sum'],
      linear=on.slots['linear'],
      lr=on.rate,
      grad=on.gradient,
      l1=self._l1,
      l2=self._l2,
      lr_power=self._power,
    )


# By the name that --optimizer takes.
OPTIMIZERS = {
  'adadelta': Adadelta,
  'adagrad': Adagrad,
  'adam': Adam,
  'ftrl': Ftrl,
  'gd': GradientDescent,
  'momentum': Momentum,
  'nesterov': Nesterov,
  'rmsprop': RMSProp,
}


def parse(text: str, momentum_flag: float) -> Optimizer:
  """The optimizer that a command line describes.

  Examples:
    >>> sorted(parse('rmsprop:decay=0.9,epsilon=0.1', 0.9).slots)
    ['mean_square', 'momentum']

  Args:
    text: 'NAME' or 'NAME:option=value,option=value', with a key of
      `OPTIMIZERS` and arguments of its class.
    momentum_flag: `momentum`, where the optimizer has one and the text does not
      say it.

  Raises:
    ValueError: unknown name or option, or a value that is no number; says what
      there is.
  """
  return spelling.make(
    'optimizer', text, OPTIMIZERS, numbers=True, momentum=momentum_flag
  )
