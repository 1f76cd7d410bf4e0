"""Base class of wrappers that keep states for each variable.

The list of states starts with the wrapper's, by default one for each variable.
The states of the wrapped method follow.
"""

import abc

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import wrapper


class StateWrapper(wrapper.Wrapper):
  """A wrapper with states for each variable.

  Attributes:
    kinds: (name, owner) of the states that each variable has; those of the
      first kind come first.
  """

  kinds: tuple[tuple[str, str], ...]

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    """Declares the wrapper's states, then those of the wrapped method."""
    outer = tuple(
      methods.State(name, owner, index, tuple(shape))
      for name, owner in self.kinds
      for index, shape in enumerate(shapes)
    )
    return (*outer, *self.method.states(shapes))

  def split(
    self, states: methods.Tensors, context: methods.Context
  ) -> tuple[methods.Tensors, methods.Tensors]:
    """Splits states into the wrapper's and the wrapped method's."""
    count = len(self.kinds) * len(context.shapes)
    return states[:count], states[count:]

  def send(
    self,
    number: int,
    gradients: methods.Tensors,
    states: methods.Tensors,
    received: methods.ReceivedRounds,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Sends the wrapped method's words.

    The states are updated in the round `estimated_round`.
    """
    outer, inner = self.split(states, context)
    words, after = self.method.send(number, gradients, inner, received, context)
    if number == self.estimated_round % self.num_rounds:
      outer = self.update_states(gradients, states, (words, after), context)
    return words, [*outer, *after]

  @abc.abstractmethod
  def update_states(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    sent: tuple[list[tf.Tensor], methods.Tensors],
    context: methods.Context,
  ) -> methods.Tensors:
    """Computes the wrapper's states after the round `estimated_round`.

    Args:
      gradients: the encoded gradients.
      states: all states before the round: the wrapper's and the wrapped
        method's.
      sent: words that the wrapped method sent, and its new states.
      context: context of the round.
    """

  def decode(
    self,
    received: methods.ReceivedRounds,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Decodes with the wrapped method; does not change the wrapper's states."""
    outer, inner = self.split(states, context)
    means, inner = self.method.decode(received, inner, context)
    return means, [*outer, *inner]
