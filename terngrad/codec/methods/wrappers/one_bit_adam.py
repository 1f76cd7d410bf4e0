"""1-bit Adam: coded momentum, divided by the root of a frozen variance.

Tang et al., 1-bit Adam: Communication Efficient Large-Scale Training with
Adam's Convergence Speed, ICML 2021, https://arxiv.org/abs/2102.02888, algorithm
1. In the first `warm_up` steps the workers exchange float32 gradients, and all
devices update Adam's momentum m and variance v. Then v is frozen, and worker i
codes beta_1 m + (1 - beta_1) grad_i with error feedback; the mean is coded too,
with the feedback of `bidirectional`, and is the new m of all devices. The
update is m / (sqrt(v) + epsilon), without the bias corrections of Adam, as in
the paper; use the optimizer `gd`, with Adam's learning rate. The default betas
and epsilon are Adam's; the default warm-up of 1,000 steps is this project's.

Departures: each range of each variable has a separate scale, the mean
magnitude, if the code is `sign`; other codes of `bidirectional` can take its
place. Where v is 0, because the gradient was 0 in the whole warm-up, the update
is 0: a sign has no zero, and would be divided by epsilon. Float32 steps after
the warm-up send the momentum and all residuals, and v stays frozen.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.methods.wrappers import around
from terngrad.codec.methods.wrappers import bidirectional
from terngrad.codec.methods.wrappers import error_feedback
from terngrad.codec.stages import weighted_sums

MOMENTUM, VARIANCE = 'adam_momentum', 'adam_variance'
# The variance before the first step; its root counts as 1.
_UNKNOWN = -1.0


class AdamSettings(NamedTuple):
  """Options of 1-bit Adam; see `one_bit_adam`."""

  warm_up: int
  beta_1: float
  beta_2: float
  epsilon: float


def one_bit_adam(
  method: methods.Method,
  workers: int = 0,
  warm_up: int = 1000,
  beta_1: float = 0.9,
  beta_2: float = 0.999,
  epsilon: float = 1e-8,
) -> methods.Method:
  """Wraps a method with feedback in both directions and Adam's update.

  Args:
    method: as for `bidirectional`; `sign` is the paper's.
    workers: N, the number of workers.
    warm_up: float32 steps before v is frozen, >= 1; the paper's are 15 to 20 %
      of all steps.
    beta_1: decay of the momentum, in [0, 1).
    beta_2: decay of the variance, in [0, 1).
    epsilon: added to the root of the variance, from 2**-126 to 2**127.

  Raises:
    ValueError: an option is out of its range, or the method is not one for
      `bidirectional`.
  """
  settings = AdamSettings(warm_up, beta_1, beta_2, epsilon)
  has_range = 0 <= beta_1 < 1 and 0 <= beta_2 < 1
  # A normal float32.
  if warm_up < 1 or not (has_range and 2.0**-126 <= epsilon <= 2.0**127):
    raise ValueError(
      'one_bit_adam: expected warm_up >= 1, betas from 0 to below 1 and '
      f'epsilon from 2**-126 to 2**127, received warm_up={warm_up}, '
      f'beta_1={beta_1}, beta_2={beta_2} and epsilon={epsilon}. Use '
      'one_bit_adam:warm_up=1000.'
    )
  both = bidirectional.bidirectional(method, workers)
  return OneBitAdam(error_feedback.ErrorFeedback(both), settings)


class OneBitAdam(around.StateWrapper):
  """The steps after the warm-up; `in_float` has those of the warm-up."""

  kinds = ((MOMENTUM, methods.SHARED), (VARIANCE, methods.SHARED))

  def __init__(self, method: methods.Method, settings: AdamSettings) -> None:
    """Wraps error feedback; see `one_bit_adam` for the settings."""
    super().__init__(method)
    self.settings = settings
    self.name = f'adam({", ".join(f"{one:g}" for one in settings)})'
    self.name += f' > {method.name}'
    self.traits = method.traits._replace(
      unbiased=False, lossless=False, preserves_scale=False
    )
    self.estimates = False  # of the momentum, not of the update
    self.makes_updates = True
    self.float_steps = settings.warm_up
    self.digits = self.unit = None

  def wrap(self, method: methods.Method) -> methods.Method:
    """Wraps another method with the same settings."""
    return type(self)(method, self.settings)

  def in_float(self, plain: methods.Method) -> methods.Method:
    """Returns the method of float32 steps, which are Adam's in the warm-up."""
    return FloatAdam(self.method.in_float(plain), self.settings)

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    """Declares the momentum and the variance of all workers."""
    return tuple(
      state._replace(initial=_unknown) if state.name == VARIANCE else state
      for state in super().states(shapes)
    )

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """Adds the gradients to the momentum of all workers."""
    momentum, inner = self.split(states, context)
    old_weight, weight = self.weights(context)
    values = [
      weighted_sums.add(old_weight, tf.reshape(old, [-1]), weight, gradient)
      for old, gradient in zip(
        momentum, methods.each(gradients, context), strict=False
      )
    ]
    return self.method.begin(values, inner, context)

  def weights(
    self, context: methods.Context
  ) -> tuple[weighted_sums.Weight, weighted_sums.Weight]:
    """Returns the weights of the momentum and of the gradients."""
    return self.settings.beta_1, 1 - self.settings.beta_1

  def update_states(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    sent: tuple[list[tf.Tensor], methods.Tensors],
    context: methods.Context,
  ) -> methods.Tensors:
    """Returns the states of all workers, which `decode` updates."""
    return self.split(states, context)[0]

  def decode(
    self,
    received: methods.ReceivedRounds,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Decodes the momentum; returns the updates."""
    outer, inner = self.split(states, context)
    means, inner = self.method.decode(received, inner, context)
    count = len(context.shapes)
    momentum, variance = self.moments(
      means, outer[:count], outer[count:], context
    )
    pairs = zip(momentum, variance, strict=True)
    updates = [self.update(m, v) for m, v in pairs]
    return updates, [*momentum, *variance, *inner]

  def moments(
    self,
    means: methods.Tensors,
    momentum: methods.Tensors,
    variance: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, methods.Tensors]:
    """Returns the new momentum and variance: the mean, and the frozen one."""
    return means, variance

  def update(self, momentum: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Divides the momentum by the root of the variance."""
    root = tf.sqrt(tf.maximum(variance, 0.0)) + self.settings.epsilon
    divided = momentum / tf.where(variance < 0.0, 1.0, root)
    return tf.where(variance == 0.0, 0.0, divided)


class FloatAdam(OneBitAdam):
  """Float32 steps: Adam in the warm-up, and later with the frozen variance."""

  def in_float(self, plain: methods.Method) -> methods.Method:
    """Returns this method."""
    return self

  def is_warm_up(self, context: methods.Context) -> tf.Tensor:
    """Returns whether the step is one of the warm-up, bool []."""
    return context.step < self.settings.warm_up

  def weights(
    self, context: methods.Context
  ) -> tuple[weighted_sums.Weight, weighted_sums.Weight]:
    """Returns 0 and 1 in the warm-up, which sends the gradients."""
    beta, is_warm_up = self.settings.beta_1, self.is_warm_up(context)
    return tf.where(is_warm_up, 0.0, beta), tf.where(is_warm_up, 1.0, 1 - beta)

  def moments(
    self,
    means: methods.Tensors,
    momentum: methods.Tensors,
    variance: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, methods.Tensors]:
    """Updates both in the warm-up; the means are those of the gradients."""
    _, beta_1, beta_2, _ = self.settings
    is_warm_up = self.is_warm_up(context)
    moved = [
      tf.where(is_warm_up, weighted_sums.add(beta_1, m, 1 - beta_1, g), g)
      for m, g in zip(momentum, means, strict=True)
    ]
    squares = [
      weighted_sums.add(beta_2, tf.maximum(v, 0.0), 1 - beta_2, g * g)
      for v, g in zip(variance, means, strict=True)
    ]
    pairs = zip(squares, variance, strict=True)
    return moved, [tf.where(is_warm_up, new, old) for new, old in pairs]


def _unknown(shape: tuple[int, ...]) -> tf.Tensor:
  return tf.fill(shape, _UNKNOWN)
