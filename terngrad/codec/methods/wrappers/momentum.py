"""Momentum correction: what is sent late has had its momentum meanwhile.

Lin et al., Deep Gradient Compression, ICLR 2018,
https://arxiv.org/abs/1712.01887, algorithm 1 with sections 3.1 (local clipping)
and 3.2 (momentum correction, factor masking). Each worker sends from the sum of
its velocities, and not of its gradients; the optimizer then is plain descent.
Departure: a velocity is what was added to the sum, after rounding.
"""

from typing import cast

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.methods.wrappers import around
from terngrad.codec.methods.wrappers import error_feedback
from terngrad.codec.stages import contract
from terngrad.codec.stages import statistics

VELOCITY = 'velocity'


def momentum_correction(
  method: methods.Method,
  momentum: float = 0.9,
  masking: int = 1,
  clip_norm: float = 0.0,
) -> methods.Method:
  """Wraps a method, and adds error feedback.

  In float32 steps in between all is sent, and the velocity goes on.

  Args:
    method: one that carries gradients.
    momentum: m of v = m v + g, in [0, 1).
    masking: 1: the velocity of an element that is sent begins anew.
    clip_norm: the gradients of a bucket are scaled down to this norm over the
      root of the number of workers; 0 does not clip. Takes the variables of a
      bucket together, which then are not cut into parts.

  Returns:
    A `method.Method`, whose first states are the velocities.

  Raises:
    ValueError: an option is out of its range, or the method carries words or
      does not say what a worker sent.
  """
  if not 0 <= momentum < 1 or masking not in (0, 1) or not clip_norm >= 0:
    raise ValueError(
      'momentum: expected a momentum from 0 to below 1, masking 0 or 1 and '
      f'clip_norm >= 0, received {momentum}, {masking} and {clip_norm}. Use '
      'momentum:momentum=0.9.'
    )
  if masking and not method.estimates:
    raise ValueError(
      'momentum: expected a method of which a worker knows what it sent, '
      f'received {method.name}. Say momentum:masking=0.'
    )
  corrected = error_feedback.ErrorFeedback(method)
  return Momentum(corrected, momentum, masking, clip_norm)


class Momentum(around.Keeping):
  """See `momentum_correction`."""

  state = VELOCITY

  def __init__(
    self,
    method: error_feedback.ErrorFeedback,
    momentum: float,
    masking: int,
    clip_norm: float,
  ) -> None:
    """See `momentum_correction`."""
    super().__init__(method)
    self.name = f'momentum({momentum:g}) > {method.method.name}'
    self.momentum, self.masking = momentum, masking
    self.clip_norm = clip_norm
    if clip_norm:
      self.scope = contract.BUCKET

  def around(self, method: methods.Method) -> methods.Method:
    """See `wrapper.Wrapper`."""
    # Error feedback gives itself around another method.
    corrected = cast(error_feedback.ErrorFeedback, method)
    return Momentum(corrected, self.momentum, self.masking, self.clip_norm)

  def in_float(self, plain: methods.Method) -> methods.Method:
    """See `method.Method`."""
    # As above.
    corrected = cast(error_feedback.ErrorFeedback, self.method.in_float(plain))
    return Momentum(corrected, self.momentum, 0, self.clip_norm)

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """See `method.Method`."""
    velocities, own = self.split(states, context)
    gradients = methods.each(gradients, context)
    if self.clip_norm:
      gradients = _clipped(gradients, self.clip_norm, context)
    pairs = zip(gradients, velocities, strict=True)
    moved = [tf.reshape(v, [-1]) * self.momentum + g for g, v in pairs]
    return self.method.begin(moved, own, context)

  def renewed(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    sent: tuple[list[tf.Tensor], methods.Tensors],
    context: methods.Context,
  ) -> methods.Tensors:
    """The velocities after the round that tells what was sent."""
    _, before = self.split(states, context)
    totals = methods.shaped(gradients, context)
    return [
      # An element of which nothing was left out of the sum was not sent.
      tf.where(new == total if self.masking else True, total - old, 0.0)
      for total, old, new in zip(totals, before, sent[1], strict=False)
    ]

  def finish(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    means: methods.Tensors,
    context: methods.Context,
  ) -> methods.Tensors:
    """See `method.Method`."""
    velocities, own = self.split(states, context)
    return [*velocities, *self.method.finish(gradients, own, means, context)]


def _clipped(
  gradients: methods.Tensors, clip_norm: float, context: methods.Context
) -> list[tf.Tensor]:
  """Gradients of at most the worker's part of the norm."""
  limit = clip_norm * context.num_workers**-0.5
  norms = tf.cast(statistics.norms(gradients), tf.float64)
  norm = tf.sqrt(tf.reduce_sum(tf.square(norms)))
  factor = tf.cast(tf.minimum(limit / tf.maximum(norm, limit), 1.0), tf.float32)
  # A norm that is not finite must show in the probe.
  return [gradient * factor for gradient in gradients]
