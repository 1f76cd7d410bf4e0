"""A Keras model's variables, by what training does with them."""

from collections.abc import Callable
from typing import NamedTuple

import keras


class ModelVariables(NamedTuple):
  """A model's variables by what training does with them.

  Attributes:
    names: of the parameters, the statistics and the frozen, 'conv1/kernel'.
    trainable: Keras variables, the parameters.
    statistics: Keras variables, float32 moving statistics.
    frozen: Keras variables, the parameters that are not trained, also those of
      layers that are not.
    order: all names, layer by layer, as the model has them.
    indices: for each of `model.non_trainable_variables` its index in the
      statistics and then the frozen; None for a seed of dropout.
  """

  names: tuple[str, ...]
  trainable: tuple[keras.Variable, ...]
  statistics: tuple[keras.Variable, ...]
  frozen: tuple[keras.Variable, ...]
  order: tuple[str, ...]
  indices: tuple[int | None, ...]


def variables_of(
  model: keras.Model, trained: Callable[[str], bool] = lambda name: True
) -> ModelVariables:
  """Sorts a Keras model's variables; see `ModelVariables`.

  Args:
    model: a built one.
    trained: takes the name of a parameter, False freezes it: the variable is
      no longer trainable.
  """

  def name(variable: keras.Variable) -> str:
    # Without the model's own name, which is no part of the net.
    return variable.path.removeprefix(f'{model.name}/')

  for variable in model.trainable_variables:
    variable.trainable = bool(trained(name(variable)))
  trainable = tuple(model.trainable_variables)
  others = [
    v
    for v in model.non_trainable_variables
    if not v.path.endswith('seed_generator_state')
  ]
  # Keras tells parameters of layers that are not trained from statistics by
  # this list alone.
  layers = model._flatten_layers()
  parameters = {v.path for one in layers for v in one._trainable_variables}
  frozen = [v for v in others if v.path in parameters]
  statistics = [v for v in others if v.path not in parameters]
  indices = {v.path: i for i, v in enumerate([*statistics, *frozen])}
  return ModelVariables(
    names=tuple(name(v) for v in (*trainable, *statistics, *frozen)),
    trainable=trainable,
    statistics=tuple(statistics),
    frozen=tuple(frozen),
    order=tuple(
      name(v)
      for v in model.weights
      if v.path in indices or v.path in {t.path for t in trainable}
    ),
    indices=tuple(indices.get(v.path) for v in model.non_trainable_variables),
  )
