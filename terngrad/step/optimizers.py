"""Optimizers with the constants of the 2017 code, on TensorFlow's kernels.

The optimizers of TensorFlow 1 called the same kernels. Keras's optimizers
differ: their momentum includes the learning rate in the velocity, and the mean
square of their RMSProp starts at 0, not at 1.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from slim import spelling
from terngrad import lazy

if TYPE_CHECKING:
  import tensorflow as tf
else:
  # --help needs only names; the lazy import spares it TensorFlow.
  tf = lazy.module('tensorflow')

# Name of `Momentum`'s slot.
MOMENTUM = 'momentum'
# Tests of the intervals that `check` takes; all are written so that NaN fails.
_INTERVALS: dict[str, Callable[[float], bool]] = {
  '[0, 1)': lambda number: 0 <= number < 1,
  '[0, inf)': lambda number: 0 <= number < math.inf,
  '(0, inf)': lambda number: 0 < number < math.inf,
  '(-inf, 0]': lambda number: -math.inf < number <= 0,
}


def check(flag: str, interval: str, **numbers: float) -> None:
  """Raises ValueError unless all numbers are in an interval.

  Args:
    flag: the flag that sets the numbers, which begins the message.
    interval: a key of `_INTERVALS`.
    **numbers: the numbers by option.
  """
  for name, number in numbers.items():
    if not _INTERVALS[interval](number):
      raise ValueError(
        f'{flag}: expected {name} in {interval}, received {number}. Choose a '
        'number in this interval, or leave it out.'
      )


class Optimizer:
  """An update rule; its `repr` contains all numbers.

  Rules of a class with equal numbers are equal.

  Attributes:
    slots: the initial value of each slot, by name.
    kernel_momentum: the momentum that `fused_updates` passes to its kernels: 0
      for `GradientDescent`. None if no kernel computes the rule.
    clip_norm: gradients are first scaled so that their global L2 norm is at
      most this; 0 turns clipping off.
  """

  def __init__(
    self, operation: str, slots: dict[str, tuple[str, float]], **numbers: float
  ) -> None:
    """Describes the operation of the rule.

    Args:
      operation: its name in `tf.raw_ops`.
      slots: for each slot's name the operation's argument and initial value.
      **numbers: other arguments of the operation, the same in all steps.
    """
    self.slots = {name: start for name, (_, start) in slots.items()}
    self.kernel_momentum: float | None = None
    self.clip_norm = 0.0
    self._operation = operation
    self._arguments = {name: argument for name, (argument, _) in slots.items()}
    self._numbers = numbers

  def __repr__(self) -> str:
    """Shows the rule with all its numbers."""
    return f'{type(self).__name__}({vars(self)})'

  def __eq__(self, other: object) -> bool:
    """Compares the class and all numbers."""
    return type(self) is type(other) and repr(self) == repr(other)

  def __hash__(self) -> int:
    """Returns the same number for equal rules."""
    return hash(repr(self))

  def with_clip_norm(self, clip_norm: float) -> Optimizer:
    """Copies the rule with another `clip_norm`; 0 turns clipping off."""
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
    """Updates a variable and its slots by assignment.

    Args:
      variable: float32.
      slots: by name, float32 in the variable's shape.
      gradient: float32 in the variable's shape.
      learning_rate: float32 [].
      step: int64 [], number of steps taken before this one.
    """
    getattr(tf.raw_ops, self._operation)(
      var=variable.handle,
      **{self._arguments[name]: slot.handle for name, slot in slots.items()},
      **self._step_arguments(gradient, learning_rate, step),
      **self._numbers,
    )

  def _step_arguments(
    self, gradient: tf.Tensor, learning_rate: tf.Tensor, step: tf.Tensor
  ) -> dict[str, tf.Tensor]:
    """Makes the arguments of the operation that change in each step."""
    del step
    return {'lr': learning_rate, 'grad': gradient}


class GradientDescent(Optimizer):
  """Plain gradient descent: w -= rate * g."""

  def __init__(self) -> None:
    """Takes no options."""
    super().__init__('ResourceApplyGradientDescent', {})
    self.kernel_momentum = 0.0

  def _step_arguments(
    self, gradient: tf.Tensor, learning_rate: tf.Tensor, step: tf.Tensor
  ) -> dict[str, tf.Tensor]:
    del step
    return {'alpha': learning_rate, 'delta': gradient}


class Momentum(Optimizer):
  """Momentum, not Nesterov's: v = momentum * v + g; w -= rate * v."""

  _is_nesterov = False

  def __init__(self, momentum: float = 0.9) -> None:
    """Takes the momentum, in [0, 1).

    Raises:
      ValueError: it is out of this range.
    """
    check('optimizer', '[0, 1)', momentum=momentum)
    super().__init__(
      'ResourceApplyMomentum',
      {MOMENTUM: ('accum', 0.0)},
      momentum=momentum,
      use_nesterov=self._is_nesterov,
    )
    self.kernel_momentum = None if self._is_nesterov else momentum


class Nesterov(Momentum):
  """Nesterov momentum: v = momentum * v + g; w -= rate * (g + momentum * v)."""

  _is_nesterov = True


class Adam(Optimizer):
  """Adam; beta1**t and beta2**t are computed from the step, not stored.

  References:
    Kingma and Ba, Adam, https://arxiv.org/abs/1412.6980, the formulation just
    before section 2.1.
  """

  def __init__(
    self, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
  ) -> None:
    """Takes the numbers of the rule.

    Args:
      beta1: decay of the first moment, in [0, 1).
      beta2: decay of the second moment, in [0, 1).
      epsilon: added to the square root of the second moment, > 0.

    Raises:
      ValueError: a number is out of its range.
    """
    check('optimizer', '[0, 1)', beta1=beta1, beta2=beta2)
    check('optimizer', '(0, inf)', epsilon=epsilon)
    super().__init__(
      'ResourceApplyAdam',
      {'first_moment': ('m', 0.0), 'second_moment': ('v', 0.0)},
      beta1=beta1,
      beta2=beta2,
      epsilon=epsilon,
    )

  def _step_arguments(
    self, gradient: tf.Tensor, learning_rate: tf.Tensor, step: tf.Tensor
  ) -> dict[str, tf.Tensor]:
    count = tf.cast(step + 1, tf.float64)
    powers = {
      f'{name}_power': tf.cast(self._numbers[name] ** count, tf.float32)
      for name in ('beta1', 'beta2')
    }
    return {'lr': learning_rate, 'grad': gradient, **powers}


class RMSProp(Optimizer):
  """RMSProp with momentum; the mean square starts at 1.

  s = decay * s + (1 - decay) * g**2; v = momentum * v + rate * g / sqrt(s +
  epsilon); w -= v.
  """

  def __init__(
    self, momentum: float = 0.9, decay: float = 0.9, epsilon: float = 1.0
  ) -> None:
    """Takes the numbers of the formulas.

    Args:
      momentum: in [0, 1).
      decay: in [0, 1).
      epsilon: > 0.

    Raises:
      ValueError: a number is out of its range.
    """
    check('optimizer', '[0, 1)', momentum=momentum, decay=decay)
    check('optimizer', '(0, inf)', epsilon=epsilon)
    super().__init__(
      'ResourceApplyRMSProp',
      {'mean_square': ('ms', 1.0), MOMENTUM: ('mom', 0.0)},
      rho=decay,
      momentum=momentum,
      epsilon=epsilon,
    )


class Adadelta(Optimizer):
  """Adadelta.

  References:
    Zeiler, ADADELTA, https://arxiv.org/abs/1212.5701, algorithm 1.
  """

  def __init__(self, rho: float = 0.95, epsilon: float = 1.0) -> None:
    """Takes the numbers of the algorithm.

    Args:
      rho: decay of both means, in [0, 1).
      epsilon: added to both means, > 0.

    Raises:
      ValueError: a number is out of its range.
    """
    check('optimizer', '[0, 1)', rho=rho)
    check('optimizer', '(0, inf)', epsilon=epsilon)
    slots = {
      'mean_square': ('accum', 0.0),
      'mean_square_update': ('accum_update', 0.0),
    }
    super().__init__('ResourceApplyAdadelta', slots, rho=rho, epsilon=epsilon)


class Adagrad(Optimizer):
  """Adagrad: s += g**2; w -= rate * g / sqrt(s)."""

  def __init__(self, initial: float = 0.1) -> None:
    """Takes the initial value of s, > 0.

    Raises:
      ValueError: it is out of this range.
    """
    check('optimizer', '(0, inf)', initial=initial)
    super().__init__('ResourceApplyAdagrad', {'square_sum': ('accum', initial)})


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
      power: exponent of the accumulator in the learning rate, <= 0.
      initial: initial value of the accumulator, >= 0.
      l1: strength of the L1 term, >= 0.
      l2: strength of the L2 term, >= 0.

    Raises:
      ValueError: a number is out of its range.
    """
    check('optimizer', '(-inf, 0]', power=power)
    check('optimizer', '[0, inf)', initial=initial, l1=l1, l2=l2)
    super().__init__(
      'ResourceApplyFtrl',
      {'square_sum': ('accum', initial), 'linear': ('linear', 0.0)},
      l1=l1,
      l2=l2,
      lr_power=power,
    )


# Classes by the name that --optimizer takes, or their locations.
OPTIMIZERS: dict[str, type[Optimizer] | str] = {
  'adadelta': Adadelta,
  'adagrad': Adagrad,
  'adam': Adam,
  'ftrl': Ftrl,
  'gd': GradientDescent,
  'momentum': Momentum,
  'muon': 'terngrad.step.muon:Muon',
  'nesterov': Nesterov,
  'rmsprop': RMSProp,
}


def parse(text: str, momentum_flag: float) -> Optimizer:
  """Makes the optimizer that the value of --optimizer describes.

  Examples:
    >>> sorted(parse('rmsprop:decay=0.9,epsilon=0.1', 0.9).slots)
    ['mean_square', 'momentum']

  Args:
    text: 'NAME' or 'NAME:option=value,option=value', with a key of
      `OPTIMIZERS` and arguments of its class.
    momentum_flag: the momentum of an optimizer that has one, unless the text
      sets it.

  Raises:
    ValueError: unknown name or option, or a value that is not a number or is
      out of its range; lists the known ones.
  """
  return spelling.make(
    'optimizer', text, OPTIMIZERS, numbers=True, momentum=momentum_flag
  )
