"""The variables of a Keras model, sorted by their role in training."""

from collections.abc import Callable
from typing import NamedTuple

import keras


class ModelVariables(NamedTuple):
  """The variables of a model, sorted by their role in training.

  Attributes:
    names: of the trainable variables, the statistics and the frozen parameters,
      such as 'conv1/kernel'.
    trainable: the parameters that are trained.
    statistics: float32 moving statistics, such as those of batch normalization.
    frozen: the parameters that are not trained, including those of layers that
      are not trainable, and integers, such as the counts of layers.
    order: all names, layer by layer, in the order of the model.
    indices: for each of `model.non_trainable_variables` its index in
      (*statistics, *frozen); None for the seed of a dropout layer.
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
  """Sorts the variables of a Keras model and freezes some.

  Args:
    model: must be built.
    trained: takes the name of a parameter. False freezes the parameter: its
      Keras variable becomes untrainable.
  """

  def name(variable: keras.Variable) -> str:
    # Without the name of the model.
    return variable.path.removeprefix(f'{model.name}/')

  for variable in model.trainable_variables:
    variable.trainable = bool(trained(name(variable)))
  trainable = tuple(model.trainable_variables)
  others = [
    v
    for v in model.non_trainable_variables
    if not v.path.endswith('seed_generator_state')
  ]
  # Only this private list distinguishes the parameters of untrainable layers
  # from moving statistics.
  layers = model._flatten_layers()
  parameters = {v.path for one in layers for v in one._trainable_variables}
  kept = {
    v.path
    for v in others
    # A counter of a layer, for example, is no statistic.
    if v.path in parameters or not keras.backend.is_float_dtype(v.dtype)
  }
  frozen = [v for v in others if v.path in kept]
  statistics = [v for v in others if v.path not in kept]
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
