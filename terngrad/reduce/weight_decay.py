"""The L2 terms of variables, and their gradients."""

from collections.abc import Hashable
from collections.abc import Sequence

import keras
import tensorflow as tf

from terngrad.codec.stages import tracing

# Equal ones of these compute the same.
_KNOWN = keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2


class WeightDecay:
  """The L2 terms of variables, as their Keras regularizers define them.

  Terms of Keras's classes with equal numbers are equal, and other terms only if
  they are the same objects.
  """

  def __init__(
    self,
    terms: Sequence[keras.regularizers.Regularizer | None],
    compiles: bool = False,
  ) -> None:
    """Takes the regularizer of each variable, None for those without one.

    With `compiles` XLA compiles `add`. GPUs need it: their time goes into
    reading and writing, and a compiled `add` reads and writes each element
    once.
    """
    self._terms, self._compiles = tuple(terms), compiles

  @classmethod
  def of(cls, variables: Sequence[keras.Variable]) -> 'WeightDecay':
    """Takes the regularizers of variables, but not the variables."""
    return cls([variable.regularizer for variable in variables])

  def __eq__(self, other: object) -> bool:
    """Returns whether the terms of another are known to compute the same."""
    return isinstance(other, WeightDecay) and self._key() == other._key()

  def __hash__(self) -> int:
    """Returns the same number for equal terms."""
    return hash(self._key())

  def _key(self) -> Hashable:
    return self._compiles, *map(_term_key, self._terms)

  def on(self, device: str) -> 'WeightDecay':
    """Returns the terms for parameters on a device, given by its name."""
    kind = tf.DeviceSpec.from_string(device).device_type
    return WeightDecay(self._terms, compiles=kind == 'GPU')

  def part(self, indices: Sequence[int]) -> 'WeightDecay':
    """Selects the terms of the variables with these indices."""
    return WeightDecay([self._terms[i] for i in indices], self._compiles)

  def has_terms(self) -> list[bool]:
    """Returns for each variable whether it has a term."""
    return [term is not None for term in self._terms]

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

  def total(self, parameters: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """Computes the sum of all terms, float32 [].

    `parameters` are the float32 values; None leaves a variable out.
    """
    terms = [
      term(parameter)
      for term, parameter in zip(self._terms, parameters, strict=True)
      if term is not None and parameter is not None
    ]
    return tf.add_n([tf.constant(0.0), *terms])

  def gradients(
    self, parameters: Sequence[tf.Tensor | None]
  ) -> list[tf.Tensor | None]:
    """Computes the gradients of the terms; None for variables without one.

    `parameters` are the float32 values; None leaves a variable out.
    """
    return [
      None if parameter is None or term is None else _gradient(term, parameter)
      for term, parameter in zip(self._terms, parameters, strict=True)
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


def _term_key(term: keras.regularizers.Regularizer | None) -> Hashable:
  if term is None:
    return None
  is_known = type(term) in _KNOWN
  return (type(term), str(term.get_config())) if is_known else id(term)
