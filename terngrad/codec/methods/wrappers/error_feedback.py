"""Error feedback: what a code left out of a gradient is sent with a later one.

Each worker adds its residual to its gradient, and keeps what its messages do
not say of the sum. A biased code then loses nothing in the sum over the steps.

Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014, for the idea;
Karimireddy et al., Error Feedback Fixes SignSGD and other Gradient Compression
Schemes, ICML 2019, https://arxiv.org/abs/1901.09847, algorithm 2. Departure:
the learning rate multiplies the mean after the exchange and not the gradient
before it.

Residuals stay small around a contraction, a code that leaves less than all of a
gradient's square. Ternary codes clipped at 2.5 standard deviations leave 1.01
of a normal one's, and their residuals grow without end; clipped at 1, 0.27.
"""

import functools

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.methods.wrappers import around

RESIDUAL = 'residual'


def error_feedback(method, plain, decay=1.0):
  """Wraps a method.

  Args:
    method: `method.Method` that carries gradients.
    plain: the `method.Method` of float32 gradients, for steps in between: they
      send the residuals too, and leave none.
    decay: what residuals are multiplied by before they are added, in (0, 1]; 1
      forgets nothing.

  Returns:
    A `method.Method`, whose first states are the residuals.

  Raises:
    ValueError: the method carries words, of which nothing can be subtracted;
      or `decay` is out of its range.
  """
  if not 0 < decay <= 1:
    raise ValueError(
      'error_feedback: expected a decay above 0 and at most 1, received '
      f'{decay}. Leave it out to forget nothing.'
    )
  if method.carry is not None:
    raise ValueError(
      f'error_feedback: expected a method that keeps gradients until they are '
      f'sent, received {method.name}. Leave sharing=requantize out.'
    )

  def like(make):
    return make and (lambda: error_feedback(make(), plain, decay))

  sends = [functools.partial(around.send, send) for send in method.send]
  if method.estimate:
    sends[method.telling] = functools.partial(_send_told, method)
  needs_mean = method.finish or not method.estimate
  decays = '' if decay == 1 else f'({decay:g})'
  return method._replace(
    name=f'error feedback{decays} > {method.name}',
    traits=method.traits._replace(unbiased=False),
    begin=functools.partial(_begin, method, decay),
    send=tuple(sends),
    decode=functools.partial(around.decode, method),
    finish=functools.partial(_finish, method) if needs_mean else None,
    states=functools.partial(around.states, RESIDUAL, method),
    on_kernels=like(method.on_kernels),
    on_gpus=like(method.on_gpus),
    in_float=like(method.in_float or (lambda: plain)),
  )


def _begin(method, decay, gradients, states, context):
  residuals, own = around.split(states, context)
  if decay != 1:
    residuals = [residual * decay for residual in residuals]
  corrected = [
    gradient + tf.reshape(residual, [-1])
    for gradient, residual in zip(
      methods.each(gradients, context), residuals, strict=True
    )
  ]
  return method.begin(corrected, own, context)


def _send_told(method, corrected, states, received, context):
  """The round of which `method.estimate` tells what was left out."""
  _, own = around.split(states, context)
  send = method.send[method.telling]
  words, own = send(corrected, own, received, context)
  said = method.estimate(words, context)
  return words, [*_left_out(corrected, said, context), *own]


def _finish(method, corrected, states, means, context):
  residuals, own = around.split(states, context)
  if not method.estimate:
    said = [tf.reshape(mean, [-1]) for mean in means]
    residuals = _left_out(corrected, said, context)
  if method.finish:
    own = method.finish(corrected, own, means, context)
  return [*residuals, *own]


def _left_out(corrected, said, context):
  """The new residuals, of the shapes of the variables."""
  pairs = zip(
    methods.each(corrected, context),
    methods.each(said, context),
    context.shapes,
    strict=True,
  )
  return [tf.reshape(a - b, shape) for a, b, shape in pairs]
