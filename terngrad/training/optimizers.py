"""Optimizers with the 2017 code's constants, on TensorFlow's own kernels.

The kernels are those that TensorFlow 1's optimizers called. Keras's optimizers
differ: their momentum holds the learning rate inside the velocity, and their
RMSProp starts its mean square at 0 and not at 1.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import statistics


class Optimizer(NamedTuple):
  """An update rule.

  Attributes:
    slots: dict of slot name to the value that it starts from.
    apply: takes (variable, slots, gradient, learning_rate, step), with `slots`
      a dict of variables, `learning_rate` float32 [] and `step` int64 [], the
      steps taken before this one; updates variable and slots in place.
    clip_norm: gradients are scaled down together to this norm before; 0 for
      any norm.
  """

  slots: dict
  apply: Callable
  clip_norm: float = 0.0


def clip_by_global_norm(gradients, clip_norm):
  """Scales gradients down where their norm, over all together, is larger.

  Sums run in float64: a float32 sum of squares loses its last terms in nets of
  millions of parameters.

  Args:
    gradients: list of float32.
    clip_norm: > 0.

  Returns:
    List of float32; NaN where an element was not finite.
  """
  norms = tf.stack([statistics.norm(gradient) for gradient in gradients])
  squares = tf.square(tf.cast(norms, tf.float64))
  total = tf.cast(tf.sqrt(tf.reduce_sum(squares)), tf.float32)
  factor = clip_norm / tf.maximum(total, clip_norm)
  return [gradient * factor for gradient in gradients]


def gradient_descent():
  """Plain descent: w -= rate * g."""

  def apply(variable, slots, gradient, learning_rate, step):
    del slots, step
    tf.raw_ops.ResourceApplyGradientDescent(
      var=variable.handle, alpha=learning_rate, delta=gradient
    )

  return Optimizer({}, apply)


def momentum(factor):
  """Momentum, not Nesterov's: v = factor * v + g; w -= rate * v.

  Args:
    factor: in [0, 1).

  Returns:
    An `Optimizer`.
  """

  def apply(variable, slots, gradient, learning_rate, step):
    del step
    tf.raw_ops.ResourceApplyMomentum(
      var=variable.handle,
      accum=slots['momentum'].handle,
      lr=learning_rate,
      grad=gradient,
      momentum=factor,
    )

  return Optimizer({'momentum': 0.0}, apply)


def adam(beta1=0.9, beta2=0.999, epsilon=1e-8):
  """Adam, with its powers taken from the step and not kept in variables.

  Args:
    beta1: decay of the first moment.
    beta2: decay of the second moment.
    epsilon: added to the root of the second moment.

  Returns:
    An `Optimizer`.

  References:
    Kingma and Ba, Adam, https://arxiv.org/abs/1412.6980, the formulation just
    before section 2.1.
  """

  def apply(variable, slots, gradient, learning_rate, step):
    count = tf.cast(step + 1, tf.float64)
    tf.raw_ops.ResourceApplyAdam(
      var=variable.handle,
      m=slots['first_moment'].handle,
      v=slots['second_moment'].handle,
      beta1_power=tf.cast(beta1**count, tf.float32),
      beta2_power=tf.cast(beta2**count, tf.float32),
      lr=learning_rate,
      beta1=beta1,
      beta2=beta2,
      epsilon=epsilon,
      grad=gradient,
    )

  return Optimizer({'first_moment': 0.0, 'second_moment': 0.0}, apply)


def rmsprop(momentum_factor, decay=0.9, epsilon=1.0):
  """RMSProp with momentum; the mean square starts at 1.

  s = decay * s + (1 - decay) * g**2; v = momentum * v + rate * g / sqrt(s +
  epsilon); w -= v.

  Args:
    momentum_factor: in [0, 1).
    decay: of the mean square.
    epsilon: inside the root.

  Returns:
    An `Optimizer`.
  """

  def apply(variable, slots, gradient, learning_rate, step):
    del step
    tf.raw_ops.ResourceApplyRMSProp(
      var=variable.handle,
      ms=slots['mean_square'].handle,
      mom=slots['momentum'].handle,
      lr=learning_rate,
      rho=decay,
      momentum=momentum_factor,
      epsilon=epsilon,
      grad=gradient,
    )

  return Optimizer({'mean_square': 1.0, 'momentum': 0.0}, apply)


# By the name that --optimizer takes; each is given the --momentum flag.
OPTIMIZERS = {
  'adam': lambda momentum_flag: adam(),
  'gd': lambda momentum_flag: gradient_descent(),
  'momentum': momentum,
  'rmsprop': rmsprop,
}
