"""Float32 steps between the compressed steps of `bidirectional`."""

from typing import TYPE_CHECKING

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import wrapper
from terngrad.codec.methods.wrappers import ranges

if TYPE_CHECKING:
  from terngrad.codec.methods.wrappers import bidirectional


class ResidualSteps(wrapper.UnchangedStates):
  """A method of float32 steps that also sends the residuals.

  Attributes:
    stateful: the method of the compressed steps, which declares the states.
  """

  stateful: 'bidirectional.Bidirectional'

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """Adds the residuals of the worker's range to the gradients."""
    gradients = methods.each(gradients, context)
    if self.stateful.residual:
      pairs = zip(gradients, self.added(states, context), strict=True)
      gradients = [gradient + more for gradient, more in pairs]
    return self.method.begin(gradients, (), context)

  def added(
    self, states: methods.Tensors, context: methods.Context
  ) -> list[tf.Tensor]:
    """Returns what `begin` adds to the gradients, float32 [n] each."""
    # The worker's range in whole variables, with zeros elsewhere. Only one
    # worker adds this residual, so it is multiplied by N for the mean.
    workers = self.stateful.workers
    is_local = tf.range(workers)[:, tf.newaxis] == context.worker
    rows = [tf.where(is_local, workers * state, 0.0) for state in states]
    return ranges.join(rows, context.sizes)

  def send(
    self,
    number: int,
    gradients: methods.Tensors,
    states: methods.Tensors,
    received: methods.ReceivedRounds,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Sends the gradients and sets the residuals to zero."""
    words, _ = self.method.send(number, gradients, (), received, context)
    return words, [tf.zeros_like(state) for state in states]
