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

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.methods.wrappers import around

RESIDUAL = 'residual'


class ErrorFeedback(around.Keeping):
  """A method whose first states are what it left out, its residuals.

  In float32 steps in between residuals are sent too, and none is left.
  """

  state = RESIDUAL

  def __init__(self, method: methods.Method, decay: float = 1.0) -> None:
    """Wraps a method.

    Args:
      method: one that carries gradients.
      decay: what residuals are multiplied by before they are added, in (0, 1];
        1 forgets nothing.

    Raises:
      ValueError: the method carries words, of which nothing can be subtracted;
        or `decay` is out of its range.
    """
    if not 0 < decay <= 1:
      raise ValueError(
        'error_feedback: expected a decay above 0 and at most 1, received '
        f'{decay}. Leave it out to forget nothing.'
      )
    if method.carries:
      raise ValueError(
        'error_feedback: expected a method that keeps gradients until they are '
        f'sent, received {method.name}. Leave sharing=requantize out.'
      )
    super().__init__(method)
    decays = '' if decay == 1 else f'({decay:g})'
    self.name = f'error feedback{decays} > {method.name}'
    self.traits = method.traits._replace(unbiased=False)
    self.finishes = method.finishes or not method.estimates
    self.decay = decay

  def around(self, method: methods.Method) -> methods.Method:
    """See `wrapper.Wrapper`."""
    return ErrorFeedback(method, self.decay)

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """See `method.Method`."""
    residuals, own = self.split(states, context)
    if self.decay != 1:
      residuals = [residual * self.decay for residual in residuals]
    corrected = [
      gradient + tf.reshape(residual, [-1])
      for gradient, residual in zip(
        methods.each(gradients, context), residuals, strict=True
      )
    ]
    return self.method.begin(corrected, own, context)

  def renewed(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    sent: tuple[list[tf.Tensor], methods.Tensors],
    context: methods.Context,
  ) -> methods.Tensors:
    """What the words leave out, where they say it; see `finish`."""
    if not self.estimates:
      return self.split(states, context)[0]
    return _left_out(gradients, self.method.estimate(sent[0], context), context)

  def finish(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    means: methods.Tensors,
    context: methods.Context,
  ) -> methods.Tensors:
    """See `method.Method`."""
    residuals, own = self.split(states, context)
    if not self.estimates:
      said = [tf.reshape(mean, [-1]) for mean in means]
      residuals = _left_out(gradients, said, context)
    if self.method.finishes:
      own = self.method.finish(gradients, own, means, context)
    return [*residuals, *own]


def _left_out(
  corrected: methods.Tensors, said: methods.Tensors, context: methods.Context
) -> list[tf.Tensor]:
  """The new residuals, of the shapes of the variables."""
  pairs = zip(
    methods.each(corrected, context),
    methods.each(said, context),
    context.shapes,
    strict=True,
  )
  return [tf.reshape(a - b, shape) for a, b, shape in pairs]
