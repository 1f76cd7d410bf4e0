"""Momentum correction: workers apply the momentum before they send.

Lin et al., Deep Gradient Compression, ICLR 2018,
https://arxiv.org/abs/1712.01887, algorithm 1 with sections 3.2 (momentum
correction, local clipping) and 3.3 (factor masking). Each worker encodes the
sum of its velocities instead of its gradients, and the optimizer is plain SGD.
Departure: a velocity is the increase of the sum in a step, after rounding.
"""

from typing import cast

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.methods.wrappers import around
from terngrad.codec.methods.wrappers import error_feedback
from terngrad.codec.methods.wrappers import float_steps
from terngrad.codec.stages import contract
from terngrad.codec.stages import statistics

VELOCITY = 'velocity'


def momentum_correction(
  method: methods.Method,
  momentum: float = 0.9,
  masking: int = 1,
  clip_norm: float = 0.0,
) -> methods.Method:
  """Wraps a method with momentum correction and error feedback.

  Float32 steps between compressed steps send the whole sum and keep the
  velocities.

  Args:
    method: a method whose `carries` is False.
    momentum: m of v = m v + g, in [0, 1).
    masking: 1: the velocity of an element that is sent becomes zero.
    clip_norm: each of N workers clips the gradients of a bucket to the norm
      clip_norm / sqrt(N); 0 turns clipping off. The norm is over all variables
      of a bucket, so the bucket is not cut into parts.

  Returns:
    A `method.Method`, whose first states are the velocities.

  Raises:
    ValueError: an option is out of its range; or the method carries words; or
      masking is 1 and the method has no estimate of what a worker sent, or
      sends nearly every element, so that no velocity would last.
  """
  is_finite = 0 <= clip_norm < float('inf')
  if not 0 <= momentum < 1 or masking not in (0, 1) or not is_finite:
    raise ValueError(
      'momentum: expected a momentum from 0 to below 1, masking 0 or 1 and a '
      f'finite clip_norm >= 0, received momentum={momentum}, '
      f'masking={masking} and clip_norm={clip_norm}. Use momentum:momentum=0.9.'
    )
  corrected = error_feedback.ErrorFeedback(method)
  if masking and not method.estimates:
    raise ValueError(
      'momentum: expected a method that can decode the words of one worker, '
      f'received {method.name}. Use momentum:masking=0.'
    )
  if masking and method.traits.dense:
    raise ValueError(
      'momentum: expected a method that leaves elements out in each step, '
      f'received {method.name}, with which masking resets every velocity and '
      'there is no momentum. Use momentum:masking=0.'
    )
  return MomentumCorrection(corrected, momentum, masking, clip_norm)


class MomentumCorrection(around.StateWrapper):
  """Adds momentum to the gradients before error feedback."""

  kinds = ((VELOCITY, methods.WORKER),)

  def __init__(
    self,
    method: error_feedback.ErrorFeedback,
    momentum: float,
    masking: int,
    clip_norm: float,
  ) -> None:
    """Wraps error feedback; see `momentum_correction` for the options."""
    super().__init__(method)
    self.name = f'momentum({momentum:g}) > {method.method.name}'
    self.momentum, self.masking = momentum, masking
    self.clip_norm = clip_norm
    if clip_norm:
      self.scope = contract.BUCKET

  def wrap(self, method: methods.Method) -> methods.Method:
    """Wraps another method with the same options."""
    # The wrapped method is always an `ErrorFeedback`.
    corrected = cast(error_feedback.ErrorFeedback, method)
    return MomentumCorrection(
      corrected, self.momentum, self.masking, self.clip_norm
    )

  def in_float(self, plain: methods.Method) -> methods.Method:
    """Returns the method of float32 steps, without masking."""
    # As above.
    corrected = cast(error_feedback.ErrorFeedback, self.method.in_float(plain))
    return MomentumCorrection(corrected, self.momentum, 0, self.clip_norm)

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """Clips the gradients and adds the velocities to them."""
    velocities, inner = self.split(states, context)
    gradients = methods.each(gradients, context)
    if self.clip_norm:
      gradients = _clipped(gradients, self.clip_norm, context)
    pairs = zip(gradients, velocities, strict=True)
    updated = [tf.reshape(v, [-1]) * self.momentum + g for g, v in pairs]
    return self.method.begin(updated, inner, context)

  def update_states(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    sent: tuple[list[tf.Tensor], methods.Tensors],
    context: methods.Context,
  ) -> methods.Tensors:
    """Computes the velocities after the round `estimated_round`."""
    _, old_states = self.split(states, context)
    totals = methods.shaped(gradients, context)
    velocities = [
      # Where the residual is the whole sum, the element was not sent.
      tf.where(new == total if self.masking else True, total - old, 0.0)
      for total, old, new in zip(totals, old_states, sent[1], strict=False)
    ]
    feedback = cast(error_feedback.ErrorFeedback, self.method)
    inner = feedback.method
    if isinstance(inner, float_steps.ResidualSteps) and inner.stateful.residual:
      # The residual of the mean, which the float32 step sent, is no velocity.
      _, mean_residuals = feedback.split(old_states, context)
      added = methods.shaped(inner.added(mean_residuals, context), context)
      pairs = zip(velocities, added, strict=True)
      velocities = [velocity - more for velocity, more in pairs]
    return velocities

  def finish(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    means: methods.Tensors,
    context: methods.Context,
  ) -> methods.Tensors:
    """Updates the states of error feedback, and keeps the velocities."""
    velocities, inner = self.split(states, context)
    return [*velocities, *self.method.finish(gradients, inner, means, context)]


def _clipped(
  gradients: methods.Tensors, clip_norm: float, context: methods.Context
) -> list[tf.Tensor]:
  """Clips to a norm of `clip_norm` / sqrt(workers)."""
  limit = clip_norm * context.num_workers**-0.5
  norms = tf.cast(statistics.norms(gradients), tf.float64)
  norm = tf.sqrt(tf.reduce_sum(tf.square(norms)))
  factor = tf.cast(tf.minimum(limit / tf.maximum(norm, limit), 1.0), tf.float32)
  # With a norm that is not finite, the probe becomes not finite too.
  return [gradient * factor for gradient in gradients]
