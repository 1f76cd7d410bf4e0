"""The variables of a Keras model, sorted by their role in training."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import keras


class ModelVariables(NamedTuple):
  """The variables of a model, sorted by their role in training.

  Attributes:
    names: of the trainable variables, the statistics and the frozen parameters,
      such as 'conv1/kernel'. Where Keras gives variables equal paths, later
      ones of the model end with '_1', '_2' and so on.
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
  parameters = {id(v) for one in layers for v in one._trainable_variables}

  def is_kept(variable: keras.Variable) -> bool:
    # A counter of a layer, for example, is no statistic.
    is_float = keras.backend.is_float_dtype(variable.dtype)
    return id(variable) in parameters or not is_float

  frozen = [v for v in others if is_kept(v)]
  statistics = [v for v in others if not is_kept(v)]
  chosen = {id(v): v for v in (*trainable, *statistics, *frozen)}
  # In the order of the model, so that freezing changes no name.
  order = [id(v) for v in model.weights if id(v) in chosen]
  keys = [*dict.fromkeys([*order, *chosen])]
  # Paths are not unique: layers of a submodel do not have its name.
  distinct = _distinct([name(chosen[key]) for key in keys])
  names = dict(zip(keys, distinct, strict=True))
  indices = {id(v): i for i, v in enumerate([*statistics, *frozen])}
  return ModelVariables(
    names=tuple(names[key] for key in chosen),
    trainable=trainable,
    statistics=tuple(statistics),
    frozen=tuple(frozen),
    order=tuple(names[key] for key in order),
    indices=tuple(indices.get(id(v)) for v in model.non_trainable_variables),
  )


def check_trainable(variables: Sequence[keras.Variable]) -> None:
  """Refuses variables that Keras trains in a way that steps here do not.

  Raises:
    ValueError: a variable has a constraint, or is a scale of float8.
  """
  for variable in variables:
    if getattr(variable, 'constraint', None) is not None:
      raise ValueError(
        f'{variable.path}: expected a variable without a constraint, received '
        f'{type(variable.constraint).__name__}, which this step would not '
        'apply. Leave it out, or train with terngrad.keras.'
      )
    if getattr(variable, 'overwrite_with_gradient', False):
      raise ValueError(
        f'{variable.path}: expected a variable that is trained, received a '
        'scale of float8. Do not quantize the model, or train with '
        'terngrad.keras.CompressedOptimizer.'
      )


def _distinct(names: Sequence[str]) -> list[str]:
  """Adds '_1', '_2', ... to names that stand before; keeps all others."""
  found: dict[str, None] = {}
  taken = {*names}
  for name in names:
    new, number = name, 0
    while new in found or (number and new in taken):
      number += 1
      new = f'{name}_{number}'
    found[new] = None
  return [*found]
