"""Momentum correction: what is sent late has had its momentum meanwhile.

Lin et al., Deep Gradient Compression, ICLR 2018,
https://arxiv.org/abs/1712.01887, algorithm 1 with sections 3.1 (local clipping)
and 3.2 (momentum correction, factor masking). Each worker sends from the sum of
its velocities, and not of its gradients; the optimizer then is plain descent.
Departure: a velocity is what was added to the sum, after rounding.
"""

import functools

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.methods.wrappers import around
from terngrad.codec.methods.wrappers import error_feedback
from terngrad.codec.stages import contract
from terngrad.codec.stages import statistics

VELOCITY = 'velocity'


def momentum_correction(method, plain, momentum=0.9, masking=1, clip_norm=0.0):
  """Wraps a method, and adds error feedback.

  Args:
    method: `method.Method` that carries gradients.
    plain: see `error_feedback.error_feedback`.
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
  if masking and not method.estimate:
    raise ValueError(
      'momentum: expected a method of which a worker knows what it sent, '
      f'received {method.name}. Say momentum:masking=0.'
    )
  inner = error_feedback.error_feedback(method, plain)

  def like(make, masking):
    options = momentum, masking, clip_norm
    return make and (lambda: momentum_correction(make(), plain, *options))

  sends = [functools.partial(around.send, send) for send in inner.send]
  told = inner.send[inner.telling]
  sends[inner.telling] = functools.partial(_send_told, told, bool(masking))
  return inner._replace(
    name=f'momentum({momentum:g}) > {method.name}',
    begin=functools.partial(_begin, inner, momentum, clip_norm),
    send=tuple(sends),
    decode=functools.partial(around.decode, inner),
    finish=inner.finish and functools.partial(_finish, inner),
    states=functools.partial(around.states, VELOCITY, inner),
    scope=contract.BUCKET if clip_norm else method.scope,
    on_kernels=like(method.on_kernels, masking),
    on_gpus=like(method.on_gpus, masking),
    # All is sent in float32, and the velocity goes on.
    in_float=like(method.in_float or (lambda: plain), 0),
  )


def _begin(inner, momentum, clip_norm, gradients, states, context):
  velocities, own = around.split(states, context)
  gradients = methods.each(gradients, context)
  if clip_norm:
    gradients = _clipped(gradients, clip_norm, context)
  pairs = zip(gradients, velocities, strict=True)
  moved = [tf.reshape(v, [-1]) * momentum + g for g, v in pairs]
  return inner.begin(moved, own, context)


def _clipped(gradients, clip_norm, context):
  """Gradients of at most the worker's part of the norm."""
  limit = clip_norm * context.num_workers**-0.5
  norms = tf.cast(statistics.norms(gradients), tf.float64)
  norm = tf.sqrt(tf.reduce_sum(tf.square(norms)))
  factor = tf.cast(tf.minimum(limit / tf.maximum(norm, limit), 1.0), tf.float32)
  # A norm that is not finite must show in the probe.
  return [gradient * factor for gradient in gradients]


def _send_told(send, masking, corrected, states, received, context):
  """The round that tells what was sent, in which velocities are renewed."""
  _, own = around.split(states, context)
  before = own[: len(context.shapes)]
  words, own = send(corrected, own, received, context)
  velocities = []
  for total, old, new in zip(
    methods.shaped(corrected, context), before, own, strict=False
  ):
    velocity = total - old
    # An element of which nothing was left out of the sum was not sent.
    kept = new == total if masking else True
    velocities.append(tf.where(kept, velocity, 0.0))
  return words, [*velocities, *own]


def _finish(inner, corrected, states, means, context):
  velocities, own = around.split(states, context)
  own = inner.finish(corrected, own, means, context)
  return [*velocities, *own]
