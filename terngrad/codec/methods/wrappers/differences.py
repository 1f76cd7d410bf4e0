"""Base class of methods that code differences from what all devices know.

Each worker keeps a vector and sends the coded difference of its gradient from
it. The worker adds the difference that it sent, times a rate, to its vector;
all devices add the mean difference, times the rate, to a common vector. So the
common vector is the mean of the workers' vectors, up to rounding: each step
rounds each of them once, and the errors add up without being corrected.
"""

import abc
from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.methods.wrappers import around
from terngrad.codec.stages import weighted_sums


class CodedDifferences(around.StateWrapper):
  """Sends coded differences; decodes the common vector plus their mean."""

  def __init__(self, name: str, method: methods.Method) -> None:
    """Wraps a method.

    Args:
      name: of the wrapper, which starts the names of its states.
      method: a method with one round, without states, that can decode the words
        of one worker.

    Raises:
      ValueError: the method is of another kind.
    """
    word = name.split('(')[0].replace(' ', '_')
    is_one = method.num_rounds == 1 and not method.states(((8, 8),))
    if method.carries or not (is_one and method.estimates):
      raise ValueError(
        f'{word}: expected a codec with one round and no state that can decode '
        f'the words of one worker, received {method.name}. Remove its wrapper '
        'or sharing=requantize, or choose another codec, such as topk.'
      )
    super().__init__(method)
    self.name = f'{name} > {method.name}'
    self.traits = method.traits._replace(lossless=False, additive=False)
    self.keeps_the_rest = True
    self.estimates = False  # needs the worker's vector
    self.digits = self.unit = None
    self.kinds = (
      (f'{word}_worker', methods.WORKER),
      (f'{word}_common', methods.SHARED),
    )

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    """Declares the vectors of the workers, whose mean is the common one."""
    (worker, _), (common, _), *_ = self.kinds
    return tuple(
      state._replace(mean_state=common) if state.name == worker else state
      for state in super().states(shapes)
    )

  @abc.abstractmethod
  def rates(self, sizes: Sequence[int]) -> list[float]:
    """Returns the rate of each variable; variables have `sizes` elements."""

  def targets(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> methods.Tensors:
    """Returns what differences are computed of, flat; here the gradients."""
    return gradients

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """Subtracts the worker's vectors."""
    gradients = methods.each(gradients, context)
    targets = self.targets(gradients, states, context)
    pairs = zip(targets, states, strict=False)
    values = [target - tf.reshape(known, [-1]) for target, known in pairs]
    return self.method.begin(values, (), context)

  def update_states(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    sent: tuple[list[tf.Tensor], methods.Tensors],
    context: methods.Context,
  ) -> methods.Tensors:
    """Adds to the worker's vectors what the worker sent."""
    estimate = self.method.estimate(sent[0], context)
    count = len(context.shapes)
    known = _add(
      states[:count], methods.shaped(estimate, context), self, context
    )
    return [*known, *states[count:]]

  def decode(
    self,
    received: methods.ReceivedRounds,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Adds the mean difference to the common vectors."""
    means, _ = self.method.decode(received, (), context)
    count = len(context.shapes)
    common = states[count : 2 * count]
    decoded = [known + mean for known, mean in zip(common, means, strict=True)]
    common = _add(common, means, self, context)
    return decoded, [*states[:count], *common, *states[2 * count :]]


def _add(
  known: methods.Tensors,
  differences: methods.Tensors,
  wrapper: CodedDifferences,
  context: methods.Context,
) -> list[tf.Tensor]:
  """Adds differences times the rates to vectors."""
  rates = wrapper.rates(context.sizes)
  return [
    vector + difference
    if rate == 1
    else weighted_sums.add(1, vector, rate, difference)
    for vector, difference, rate in zip(known, differences, rates, strict=True)
  ]
