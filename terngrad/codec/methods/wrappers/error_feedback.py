"""Error feedback: the compression error is added to a later gradient.

Each worker adds its residual to its gradient and encodes the sum. The new
residual is the part of the sum that the messages do not contain. Summed over
the steps, a biased code then loses nothing.

Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014, for the idea;
Karimireddy et al., Error Feedback Fixes SignSGD and other Gradient Compression
Schemes, ICML 2019, https://arxiv.org/abs/1901.09847, algorithm 2. Departure:
the learning rate multiplies the mean after the exchange and not the gradient
before it.

Residuals stay small with a contractive compressor, whose squared error is less
than the square of the gradient. For a normal gradient, ternary codes clipped at
2.5 standard deviations have an error of 1.01 times the square, and their
residuals grow without bound; clipped at 1, the error is 0.27.
"""

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.methods.wrappers import around

RESIDUAL = 'residual'


class ErrorFeedback(around.StateWrapper):
  """Adds residuals to the gradients before a method encodes them.

  The residuals are the first states. Float32 steps between compressed steps
  also send the residuals and set them to zero.
  """

  kinds = ((RESIDUAL, methods.WORKER),)

  def __init__(self, method: methods.Method, decay: float = 1.0) -> None:
    """Wraps a method.

    Args:
      method: a method whose `carries` is False.
      decay: factor of the residuals before they are added, in (0, 1]; 1 keeps
        them unchanged.

    Raises:
      ValueError: the method carries words, from which no residual can be
        computed; it has error feedback already; or `decay` is out of range.
    """
    if not 0 < decay <= 1:
      raise ValueError(
        'error_feedback: expected a decay above 0 and at most 1, received '
        f'{decay}. Remove the option to keep whole residuals.'
      )
    if method.carries:
      raise ValueError(
        'error_feedback: expected a codec that encodes after the workers agree '
        f'on the probe, received {method.name}. Remove sharing=requantize.'
      )
    if method.keeps_the_rest:
      raise ValueError(
        'error_feedback: expected a codec that does not keep what it does not '
        f'send, received {method.name}. Leave out error_feedback, or momentum.'
      )
    super().__init__(method)
    decays = '' if decay == 1 else f'({decay:g})'
    self.name = f'error feedback{decays} > {method.name}'
    self.traits = method.traits._replace(unbiased=False)
    self.keeps_the_rest = True
    self.finishes = method.finishes or not method.estimates
    self.decay = decay

  def wrap(self, method: methods.Method) -> methods.Method:
    """Wraps another method with the same decay."""
    return ErrorFeedback(method, self.decay)

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """Adds the residuals to the gradients."""
    residuals, inner = self.split(states, context)
    if self.decay != 1:
      residuals = [residual * self.decay for residual in residuals]
    corrected = [
      gradient + tf.reshape(residual, [-1])
      for gradient, residual in zip(
        methods.each(gradients, context), residuals, strict=True
      )
    ]
    return self.method.begin(corrected, inner, context)

  def update_states(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    sent: tuple[list[tf.Tensor], methods.Tensors],
    context: methods.Context,
  ) -> methods.Tensors:
    """Returns the sum minus the estimate of the sent words, if there is one."""
    if not self.estimates:
      return self.split(states, context)[0]
    estimate = self.method.estimate(sent[0], context)
    return _new_residuals(gradients, estimate, context)

  def finish(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    means: methods.Tensors,
    context: methods.Context,
  ) -> methods.Tensors:
    """Returns the sum minus the mean as residuals, without an estimate.

    Then calls `finish` of the wrapped method, if it has one.
    """
    residuals, inner = self.split(states, context)
    if not self.estimates:
      decoded = [tf.reshape(mean, [-1]) for mean in means]
      residuals = _new_residuals(gradients, decoded, context)
    if self.method.finishes:
      inner = self.method.finish(gradients, inner, means, context)
    return [*residuals, *inner]


def _new_residuals(
  corrected: methods.Tensors, decoded: methods.Tensors, context: methods.Context
) -> list[tf.Tensor]:
  """Returns the new residuals, in the shapes of the variables."""
  pairs = zip(
    methods.each(corrected, context),
    methods.each(decoded, context),
    context.shapes,
    strict=True,
  )
  return [tf.reshape(a - b, shape) for a, b, shape in pairs]
