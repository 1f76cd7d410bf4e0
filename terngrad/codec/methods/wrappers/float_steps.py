"""Steps in float32 between those of `bidirectional`."""

from typing import TYPE_CHECKING

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import wrapper
from terngrad.codec.methods.wrappers import ranges

if TYPE_CHECKING:
  from terngrad.codec.methods.wrappers import bidirectional


class WithResiduals(wrapper.WithStates):
  """The method of float32 steps, in which residuals are sent.

  Attributes:
    remembering: the method of the others.
  """

  remembering: 'bidirectional.Bidirectional'

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """See `method.Method`."""
    gradients = methods.each(gradients, context)
    if self.remembering.residual:
      # A worker's ranges in whole variables, zeros elsewhere. The mean is over
      # all workers, of whom one owes this.
      workers = self.remembering.workers
      is_own = tf.range(workers)[:, tf.newaxis] == context.worker
      rows = [tf.where(is_own, state, 0.0) for state in states]
      pairs = zip(gradients, ranges.joined(rows, context.sizes), strict=True)
      gradients = [gradient + workers * owed for gradient, owed in pairs]
    return self.method.begin(gradients, (), context)

  def send(
    self,
    number: int,
    gradients: methods.Tensors,
    states: methods.Tensors,
    received: methods.Arrived,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """See `method.Method`; nothing is owed after it."""
    words, _ = self.method.send(number, gradients, (), received, context)
    return words, [tf.zeros_like(state) for state in states]
