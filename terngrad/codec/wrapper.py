"""Methods around other methods."""

import copy
from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import method as methods


class Wrapper(methods.Method):
  """A method around another one, which does what that does.

  Attributes:
    method: the other one.
  """

  def __init__(self, method: methods.Method) -> None:
    """Declares what the other one does."""
    self.method = method
    for name in methods.Method.__annotations__:
      setattr(self, name, getattr(method, name))

  def around(self, method: methods.Method) -> methods.Method:
    """What this one makes of another method: here nothing."""
    return method

  def messages(self, shapes: methods.Shapes) -> methods.Rounds:
    """See `method.Method`."""
    return self.method.messages(shapes)

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    """See `method.Method`."""
    return self.method.states(shapes)

  def num_probes(self, num_elements: int) -> int:
    """See `method.Method`."""
    return self.method.num_probes(num_elements)

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """See `method.Method`."""
    return self.method.begin(gradients, states, context)

  def send(
    self,
    number: int,
    gradients: methods.Tensors,
    states: methods.Tensors,
    received: methods.Arrived,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """See `method.Method`."""
    return self.method.send(number, gradients, states, received, context)

  def decode(
    self,
    received: methods.Arrived,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """See `method.Method`."""
    return self.method.decode(received, states, context)

  def estimate(
    self, words: Sequence[tf.Tensor], context: methods.Context
  ) -> list[tf.Tensor]:
    """See `method.Method`."""
    return self.method.estimate(words, context)

  def carry_words(self, shapes: methods.Shapes) -> int:
    """See `method.Method`."""
    return self.method.carry_words(shapes)

  def on_kernels(self) -> methods.Method:
    """See `method.Method`."""
    return self._again(self.method.on_kernels())

  def on_gpus(self) -> methods.Method:
    """See `method.Method`."""
    return self._again(self.method.on_gpus())

  def in_float(self, plain: methods.Method) -> methods.Method:
    """See `method.Method`."""
    return self.around(self.method.in_float(plain))

  def _again(self, method: methods.Method) -> methods.Method:
    if method is self.method:
      return self
    made = self.around(method)
    if not isinstance(self, type(made)):
      return made
    # What a subclass defines and what `_replace` changed stays.
    known, again = vars(self.around(self.method)), copy.copy(self)
    for name, value in vars(made).items():
      if name not in vars(self) or vars(self)[name] == known[name]:
        setattr(again, name, value)
    return again


class WithStates(Wrapper):
  """A method with another one's states, which it leaves as they are.

  Attributes:
    remembering: the other one.
  """

  def __init__(
    self, method: methods.Method, remembering: methods.Method
  ) -> None:
    """Wraps a method that keeps nothing."""
    super().__init__(method)
    self.remembering = remembering

  def around(self, method: methods.Method) -> methods.Method:
    """See `Wrapper`."""
    return type(self)(method, self.remembering)

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    """See `method.Method`."""
    return self.remembering.states(shapes)


class SelfCompiled(Wrapper):
  """A method whose functions XLA compiles one by one."""

  def __init__(self, method: methods.Method) -> None:
    """Wraps a method that wants to be compiled."""
    super().__init__(method)
    names = ['begin', 'carry', 'decode', 'estimate', 'finish', 'send']
    # Plain floats are moved as they are; compiled code would copy them.
    compile_apart(self, method, names[:-1] if method.traits.lossless else names)


def self_compiled(method: methods.Method) -> methods.Method:
  """The method with functions that XLA compiles one by one, if any."""
  return SelfCompiled(method) if method.compiled else method


def compile_apart(
  target: methods.Method, source: methods.Method, names: Sequence[str]
) -> None:
  """Gives a method another one's functions, which XLA compiles one by one."""
  target.compiled = False
  for name in names:
    setattr(target, name, tf.function(getattr(source, name), jit_compile=True))
