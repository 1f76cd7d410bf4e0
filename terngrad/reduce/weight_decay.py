"""The L2 terms of variables, and their gradients."""

from collections.abc import Hashable
from collections.abc import Sequence

import keras
import tensorflow as tf

# Equal ones of these compute the same.
_KNOWN = keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2


class WeightDecay:
  """The L2 terms of variables, as their Keras regularizers define them."""

  def __init__(self, variables: Sequence[keras.Variable]) -> None:
    """Takes the regularizers of the variables; their values are not read."""
    self._variables = variables

  def part(self, indices: Sequence[int]) -> 'WeightDecay':
    """Selects the terms of the variables with these indices."""
    return WeightDecay([self._variables[i] for i in indices])

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
    present = [p for p in parameters if p is not None]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(present)
      loss = self.total(parameters)
    terms = iter(tape.gradient(loss, present))
    return [p if p is None else next(terms) for p in parameters]


def _key(variable: keras.Variable) -> Hashable:
  term = variable.regularizer
  if type(term) in _KNOWN:
    return type(term), str(term.get_config())
  return None if term is None else id(term)
