"""The L2 terms of variables, and their gradients."""

from collections.abc import Hashable
from collections.abc import Sequence

import keras
import tensorflow as tf

from terngrad.codec.stages import tracing

# Equal ones of these compute the same.
_KNOWN = keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2


class WeightDecay:
  """The L2 terms of variables, as their Keras regularizers define them."""

  def __init__(
    self, variables: Sequence[keras.Variable], compiles: bool = False
  ) -> None:
    """Takes the regularizers of the variables; their values are not read.

    With `compiles` XLA compiles `add`. GPUs need it: their time goes into
    reading and writing, and a compiled `add` reads and writes each element
    once.
    """
    self._variables, self._compiles = variables, compiles

  def on(self, device: str) -> 'WeightDecay':
    """Returns the terms for parameters on a device, given by its name."""
    kind = tf.DeviceSpec.from_string(device).device_type
    return WeightDecay(self._variables, compiles=kind == 'GPU')

  def part(self, indices: Sequence[int]) -> 'WeightDecay':
    """Selects the terms of the variables with these indices."""
    return WeightDecay([self._variables[i] for i in indices], self._compiles)

  def has_terms(self) -> list[bool]:
    """Returns for each variable whether it has a term."""
    return [variable.regularizer is not None for variable in self._variables]

  def add(
    self, gradients: Sequence[tf.Tensor], parameters: Sequence[tf.Tensor]
  ) -> list[tf.Tensor]:
    """Adds the gradients of the terms to those of the loss.

    Args:
      gradients: float32, one for each variable.
      parameters: float32, the values of the variables.
    """
    chosen = [i for i, has_term in enumerate(self.has_terms()) if has_term]
    terms = self.part(chosen)
    # Gradients without a term stay outside: XLA copies what it returns.
    add = tracing.compiled(terms._add) if self._compiles else terms._add
    values = list(gradients)
    if chosen:
      sums = add(
        [gradients[i] for i in chosen], [parameters[i] for i in chosen]
      )
      for index, value in zip(chosen, sums, strict=True):
        values[index] = value
    return values

  def _add(
    self, gradients: list[tf.Tensor], parameters: list[tf.Tensor]
  ) -> list[tf.Tensor]:
    terms = self.gradients(parameters)
    return [a + b for a, b in zip(gradients, terms, strict=True)]

  def key(self) -> Hashable:
    """Returns what decides about the terms; equal for equal terms."""
    return tuple(map(_key, self._variables))

  def total(self, parameters: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """Computes the sum of all terms, float32 [].

    `parameters` are the float32 values; None leaves a variable out.
    """
    terms = [
      variable.regularizer(parameter)
      for variable, parameter in zip(self._variables, parameters, strict=True)
      if variable.regularizer is not None and parameter is not None
    ]
    return tf.add_n([tf.constant(0.0), *terms])

  def gradients(
    self, parameters: Sequence[tf.Tensor | None]
  ) -> list[tf.Tensor | None]:
    """Computes the gradients of the terms; None for variables without one.

    `parameters` are the float32 values; None leaves a variable out.
    """
    return [
      None
      if parameter is None or variable.regularizer is None
      else _gradient(variable.regularizer, parameter)
      for variable, parameter in zip(self._variables, parameters, strict=True)
    ]


def _gradient(
  term: keras.regularizers.Regularizer, parameter: tf.Tensor
) -> tf.Tensor:
  """Returns the gradient of a term; doubling before or after is exact."""
  if type(term) is keras.regularizers.L2:
    return parameter * (2 * tf.constant(term.l2, tf.float32))
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(parameter)
    loss = term(parameter)
  return tape.gradient(
    loss, parameter, unconnected_gradients=tf.UnconnectedGradients.ZERO
  )


def _key(variable: keras.Variable) -> Hashable:
  term = variable.regularizer
  if type(term) in _KNOWN:
    return type(term), str(term.get_config())
  return None if term is None else id(term)
