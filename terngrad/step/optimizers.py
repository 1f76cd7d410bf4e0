"""Optimizers with the 2017 code's constants, on TensorFlow's own kernels.

The kernels are those that TensorFlow 1's optimizers called. Keras's optimizers
differ: their momentum holds the learning rate inside the velocity, and their
RMSProp starts its mean square at 0 and not at 1.
"""

from collections.abc import Callable
from typing import NamedTuple

from slim import spelling
from terngrad import lazy

# Names alone are asked for by --help, which does without TensorFlow.
statistics = lazy.module('terngrad.codec.stages.statistics')
tf = lazy.module('tensorflow')

# The slot of `momentum`.
MOMENTUM = 'momentum'


class Optimizer(NamedTuple):
  """An update rule.

  Attributes:
    slots: dict of slot name to the value that it starts from.
    apply: takes (variable, slots, gradient, learning_rate, step), with `slots`
      a dict of variables, `learning_rate` float32 [] and `step` int64 [], the
      steps taken before this one; updates variable and slots in place.
    momentum: where the rule is `momentum`'s, or with 0 and no slots
      `gradient_descent`'s, that factor; None for all others. For kernels.
    clip_norm: gradients are scaled down together to this norm before; 0 for
      any norm.
  """

  slots: dict
  apply: Callable
  momentum: float | None = None
  clip_norm: float = 0.0


def clip_by_global_norm(gradients, clip_norm):
  """Scales gradients down where their norm, over all together, is larger.

  Args:
    gradients: list of float32.
    clip_norm: > 0.

  Returns:
    List of float32; NaN where an element was not finite.
  """
  norms = [statistics.norm(gradient) for gradient in gradients]
  factor = clip_factor(norms, clip_norm)
  return [gradient * factor for gradient in gradients]


def clip_factor(norms, clip_norm):
  """What brings gradients to a norm, over all together, that is not larger.

  Sums run in float64: a float32 sum of squares loses its last terms in nets of
  millions of parameters.

  Args:
    norms: list of float32 [], of each gradient.
    clip_norm: > 0.

  Returns:
    float32 [], at most 1; NaN where a norm is.
  """
  squares = tf.square(tf.cast(tf.stack(norms), tf.float64))
  total = tf.cast(tf.sqrt(tf.reduce_sum(squares)), tf.float32)
  return clip_norm / tf.maximum(total, clip_norm)


def _rule(operation, rate='lr', gradient='grad', slots=(), **numbers):
  """The `Optimizer` of one of TensorFlow's operations.

  Args:
    operation: a function of `tf.raw_ops`.
    rate: the operation's name of the learning rate.
    gradient: its name of the gradient.
    slots: dict of its names of the slots to (ours, what they start from).
    **numbers: its other arguments.
  """
  slots = dict(slots)

  def apply(variable, own, value, learning_rate, step):
    del step
    handles = {name: own[ours].handle for name, (ours, _) in slots.items()}
    values = {rate: learning_rate, gradient: value}
    operation(var=variable.handle, **handles, **values, **numbers)

  return Optimizer(dict(slots.values()), apply)


def gradient_descent():
  """Plain descent: w -= rate * g."""
  rule = _rule(tf.raw_ops.ResourceApplyGradientDescent, 'alpha', 'delta')
  return rule._replace(momentum=0.0)


def momentum(momentum=0.9):
  """Momentum, not Nesterov's: v = momentum * v + g; w -= rate * v.

  Args:
    momentum: in [0, 1).

  Returns:
    An `Optimizer`.
  """
  rule = _rule(
    tf.raw_ops.ResourceApplyMomentum,
    slots={'accum': (MOMENTUM, 0.0)},
    momentum=momentum,
  )
  return rule._replace(momentum=momentum)


def nesterov(momentum=0.9):
  """Nesterov's momentum: v = momentum * v + g; w -= rate * (g + momentum * v).

  Args:
    momentum: in [0, 1).

  Returns:
    An `Optimizer`.
  """
  return _rule(
    tf.raw_ops.ResourceApplyMomentum,
    slots={'accum': (MOMENTUM, 0.0)},
    momentum=momentum,
    use_nesterov=True,
  )


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


def rmsprop(momentum=0.9, decay=0.9, epsilon=1.0):
  """RMSProp with momentum; the mean square starts at 1.

  s = decay * s + (1 - decay) * g**2; v = momentum * v + rate * g / sqrt(s +
  epsilon); w -= v.

  Args:
    momentum: in [0, 1).
    decay: of the mean square.
    epsilon: inside the root.

  Returns:
    An `Optimizer`.
  """
  return _rule(
    tf.raw_ops.ResourceApplyRMSProp,
    slots={'ms': ('mean_square', 1.0), 'mom': (MOMENTUM, 0.0)},
    rho=decay,
    momentum=momentum,
    epsilon=epsilon,
  )


def adadelta(rho=0.95, epsilon=1.0):
  """Adadelta.

  Args:
    rho: decay of both means.
    epsilon: added to both means.

  Returns:
    An `Optimizer`.

  References:
    Zeiler, ADADELTA, https://arxiv.org/abs/1212.5701, algorithm 1.
  """
  return _rule(
    tf.raw_ops.ResourceApplyAdadelta,
    slots={
      'accum': ('mean_square', 0.0),
      'accum_update': ('mean_square_update', 0.0),
    },
    rho=rho,
    epsilon=epsilon,
  )


def adagrad(initial=0.1):
  """Adagrad: s += g**2; w -= rate * g / sqrt(s).

  Args:
    initial: what s starts from, > 0.

  Returns:
    An `Optimizer`.
  """
  return _rule(
    tf.raw_ops.ResourceApplyAdagrad, slots={'accum': ('square_sum', initial)}
  )


def ftrl(power=-0.5, initial=0.1, l1=0.0, l2=0.0):
  """FTRL-Proximal.

  Args:
    power: of the accumulator in the learning rate, <= 0.
    initial: what the accumulator starts from, >= 0.
    l1: strength of the L1 term, >= 0.
    l2: strength of the L2 term, >= 0.

  Returns:
    An `Optimizer`.

  References:
    McMahan et al., Ad Click Prediction, KDD 2013, algorithm 1.
  """
  return _rule(
    tf.raw_ops.ResourceApplyFtrl,
    slots={'accum': ('square_sum', initial), 'linear': ('linear', 0.0)},
    l1=l1,
    l2=l2,
    lr_power=power,
  )


# By the name that --optimizer takes.
OPTIMIZERS = {
  'adadelta': adadelta,
  'adagrad': adagrad,
  'adam': adam,
  'ftrl': ftrl,
  'gd': gradient_descent,
  'momentum': momentum,
  'nesterov': nesterov,
  'rmsprop': rmsprop,
}


def parse(text, momentum_flag):
  """The optimizer that a command line describes.

  Examples:
    >>> sorted(parse('rmsprop:decay=0.9,epsilon=0.1', 0.9).slots)
    ['mean_square', 'momentum']

  Args:
    text: 'NAME' or 'NAME:option=value,option=value', with a key of
      `OPTIMIZERS` and arguments of its function.
    momentum_flag: `momentum`, where the optimizer has one and the text does not
      say it.

  Returns:
    An `Optimizer`.

  Raises:
    ValueError: unknown name or option, or a value that is no number; says what
      there is.
  """
  return spelling.make(
    'optimizer', text, OPTIMIZERS, numbers=True, momentum=momentum_flag
  )
