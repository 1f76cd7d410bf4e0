"""What a wrapper keeps of each variable, before what is within keeps.

A wrapper's own states come first, one of each variable; the wrapped method gets
the rest.
"""

import abc

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import wrapper


class Keeping(wrapper.Wrapper):
  """A wrapper with a state of each variable and worker.

  Attributes:
    state: the name of its states.
  """

  state: str

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    """See `method.Method`."""
    own = tuple(
      methods.State(self.state, methods.WORKER, index, tuple(shape))
      for index, shape in enumerate(shapes)
    )
    return (*own, *self.method.states(shapes))

  def split(
    self, states: methods.Tensors, context: methods.Context
  ) -> tuple[methods.Tensors, methods.Tensors]:
    """(the wrapper's own states, those of the method within)."""
    count = len(context.shapes)
    return states[:count], states[count:]

  def send(
    self,
    number: int,
    gradients: methods.Tensors,
    states: methods.Tensors,
    received: methods.Arrived,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """See `method.Method`; the round `telling` renews the wrapper's states."""
    own, inner = self.split(states, context)
    words, after = self.method.send(number, gradients, inner, received, context)
    if number == self.telling % self.num_rounds:
      own = self.renewed(gradients, states, (words, after), context)
    return words, [*own, *after]

  @abc.abstractmethod
  def renewed(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    sent: tuple[list[tf.Tensor], methods.Tensors],
    context: methods.Context,
  ) -> methods.Tensors:
    """The wrapper's own states after the round that tells what was sent.

    Args:
      gradients: what was coded.
      states: before the round, of the wrapper and of the method within.
      sent: what the method within sent, and its states.
      context: of the round.
    """

  def decode(
    self,
    received: methods.Arrived,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """See `method.Method`."""
    own, inner = self.split(states, context)
    means, inner = self.method.decode(received, inner, context)
    return means, [*own, *inner]
