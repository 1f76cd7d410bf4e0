"""Error feedback: what a code left out of a gradient is sent with a later one.

Each worker adds its residual to its gradient, and keeps what its messages do
not say of the sum. A biased code then loses nothing in the sum over the steps.

Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014, for the idea;
Karimireddy et al., Error Feedback Fixes SignSGD and other Gradient Compression
Schemes, ICML 2019, https://arxiv.org/abs/1901.09847, algorithm 2. Departure:
the learning rate multiplies the mean after the exchange and not the gradient
before it.
"""

import tensorflow as tf

from terngrad.codec import method as methods

RESIDUAL = 'residual'


def error_feedback(method, plain):
  """Wraps a method.

  Args:
    method: `method.Method` that carries gradients.
    plain: the `method.Method` of float32 gradients, for steps in between: they
      send the residuals too, and leave none.

  Returns:
    A `method.Method`, whose first states are the residuals.

  Raises:
    ValueError: the method carries words, of which nothing can be subtracted.
  """
  if method.carry is not None:
    raise ValueError(
      f'error_feedback: expected a method that keeps gradients until they are '
      f'sent, received {method.name}. Leave sharing=thin out.'
    )

  def states(shapes):
    residuals = tuple(
      methods.State(RESIDUAL, methods.WORKER, i, tuple(shape))
      for i, shape in enumerate(shapes)
    )
    return (*residuals, *method.states(shapes))

  def begin(gradients, states, context):
    residuals, own = _split(states, context)
    corrected = [
      gradient + tf.reshape(residual, [-1])
      for gradient, residual in zip(
        methods.each(gradients, context), residuals, strict=True
      )
    ]
    return method.begin(corrected, own, context)

  def left_out(corrected, said, context):
    pairs = zip(
      methods.each(corrected, context),
      methods.each(said, context),
      context.shapes,
      strict=True,
    )
    return [tf.reshape(a - b, shape) for a, b, shape in pairs]

  def wrap(send, is_last):
    def send_with_residuals(corrected, states, received, context):
      residuals, own = _split(states, context)
      words, own = send(corrected, own, received, context)
      if is_last and method.estimate:
        said = method.estimate(words, context)
        residuals = left_out(corrected, said, context)
      return words, [*residuals, *own]

    return send_with_residuals

  def decode(received, states, context):
    residuals, own = _split(states, context)
    means, own = method.decode(received, own, context)
    return means, [*residuals, *own]

  def finish(corrected, states, means, context):
    residuals, own = _split(states, context)
    if not method.estimate:
      said = [tf.reshape(mean, [-1]) for mean in means]
      residuals = left_out(corrected, said, context)
    if method.finish:
      own = method.finish(corrected, own, means, context)
    return [*residuals, *own]

  def like(make):
    return make and (lambda: error_feedback(make(), plain))

  last = len(method.send) - 1
  needs_mean = method.finish or not method.estimate
  return method._replace(
    name=f'error feedback > {method.name}',
    traits=method.traits._replace(unbiased=False),
    begin=begin,
    send=tuple(wrap(send, i == last) for i, send in enumerate(method.send)),
    decode=decode,
    finish=finish if needs_mean else None,
    states=states,
    on_kernels=like(method.on_kernels),
    on_gpus=like(method.on_gpus),
    in_float=lambda: error_feedback(
      method.in_float() if method.in_float else plain, plain
    ),
  )


def _split(states, context):
  """(the residuals, the states of the wrapped method)."""
  count = len(context.shapes)
  return states[:count], states[count:]
