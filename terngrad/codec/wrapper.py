"""Methods that wrap other methods."""

import copy
from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import tracing


class Wrapper(methods.Method):
  """A method that delegates to another method.

  Attributes:
    method: the wrapped method.
  """

  def __init__(self, method: methods.Method) -> None:
    """Copies the declarations of the wrapped method."""
    self.method = method
    for name in methods.Method.__annotations__:
      setattr(self, name, getattr(method, name))

  def wrap(self, method: methods.Method) -> methods.Method:
    """Applies this wrapper to another method; here it returns that method.

    Make the result with the constructor: it copies the declarations of the new
    method, such as `compiled`. Those of this wrapper may be wrong for it.
    """
    return method

  def messages(self, shapes: methods.Shapes) -> methods.Rounds:
    """Returns the messages of the wrapped method."""
    return self.method.messages(shapes)

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    """Returns the states of the wrapped method."""
    return self.method.states(shapes)

  def omega(self, num_elements: int) -> float | None:
    """Returns the bound of the wrapped method, for wrappers that keep it."""
    return self.method.omega(num_elements)

  def num_probes(self, num_elements: int) -> int:
    """Returns the number of probes of the wrapped method."""
    return self.method.num_probes(num_elements)

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """Calls `begin` of the wrapped method."""
    return self.method.begin(gradients, states, context)

  def send(
    self,
    number: int,
    gradients: methods.Tensors,
    states: methods.Tensors,
    received: methods.ReceivedRounds,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Calls `send` of the wrapped method."""
    return self.method.send(number, gradients, states, received, context)

  def decode(
    self,
    received: methods.ReceivedRounds,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Calls `decode` of the wrapped method."""
    return self.method.decode(received, states, context)

  def estimate(
    self, words: Sequence[tf.Tensor], context: methods.Context
  ) -> list[tf.Tensor]:
    """Calls `estimate` of the wrapped method."""
    return self.method.estimate(words, context)

  def carry(
    self, gradients: methods.Tensors, context: methods.Context
  ) -> tf.Tensor:
    """Calls `carry` of the wrapped method."""
    return self.method.carry(gradients, context)

  def carry_words(self, shapes: methods.Shapes) -> int:
    """Returns the number of carried words of the wrapped method."""
    return self.method.carry_words(shapes)

  def finish(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    means: Sequence[tf.Tensor],
    context: methods.Context,
  ) -> methods.Tensors:
    """Calls `finish` of the wrapped method."""
    return self.method.finish(gradients, states, means, context)

  def on_kernels(self) -> methods.Method:
    """Wraps the CPU variant of the wrapped method."""
    return self._rewrap(self.method.on_kernels())

  def on_gpus(self) -> methods.Method:
    """Wraps the GPU variant of the wrapped method."""
    return self._rewrap(self.method.on_gpus())

  def in_float(self, plain: methods.Method) -> methods.Method:
    """Wraps the method of float32 steps."""
    return self.wrap(self.method.in_float(plain))

  def _rewrap(self, method: methods.Method) -> methods.Method:
    if method is self.method:
      return self
    rebuilt = self.wrap(method)
    if not isinstance(self, type(rebuilt)):
      return rebuilt
    # Keep what a subclass defines and what `_replace` changed.
    defaults, copied = vars(self.wrap(self.method)), copy.copy(self)
    for name, value in vars(rebuilt).items():
      if name not in vars(self) or vars(self)[name] == defaults[name]:
        setattr(copied, name, value)
    return copied


class UnchangedStates(Wrapper):
  """A method with the states of another method, which it leaves unchanged.

  Attributes:
    stateful: the method that declares the states.
  """

  def __init__(self, method: methods.Method, stateful: methods.Method) -> None:
    """Wraps a method without states."""
    super().__init__(method)
    self.stateful = stateful

  def wrap(self, method: methods.Method) -> methods.Method:
    """Wraps another method with the same states."""
    return type(self)(method, self.stateful)

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    """Returns the states of `stateful`."""
    return self.stateful.states(shapes)


class SelfCompiled(Wrapper):
  """A method whose functions XLA compiles separately."""

  def __init__(self, method: methods.Method) -> None:
    """Wraps a method whose `compiled` is True."""
    super().__init__(method)
    names = ['begin', 'carry', 'decode', 'estimate', 'finish', 'send']
    # Lossless methods return their input; compiled code would copy it.
    compile_separately(
      self, method, names[:-1] if method.traits.lossless else names
    )


def self_compiled(method: methods.Method) -> methods.Method:
  """Returns the method with functions that XLA compiles separately.

  A method whose `compiled` is False is returned unchanged.
  """
  return SelfCompiled(method) if method.compiled else method


def compile_separately(
  target: methods.Method, source: methods.Method, names: Sequence[str]
) -> None:
  """Replaces functions of `target` by those of `source`, compiled by XLA.

  Each function is compiled separately, and `target.compiled` becomes False.
  """
  target.compiled = False
  for name in names:
    setattr(target, name, tracing.compiled(getattr(source, name)))
