"""The optimizers of Keras that recipes of local steps use inside."""

import inspect
from typing import Any

import keras
from absl import logging

from slim import spelling
from terngrad import errors
from terngrad.recipes import catalog

# Classes of `keras.optimizers` by the names of `--inner_optimizer`.
_CLASSES = {'adamw': 'AdamW', 'muon': 'Muon'}


def recipe_optimizer(recipe: str, **options: Any) -> keras.optimizers.Optimizer:
  """Creates the inner optimizer of a recipe, for `Model.compile`.

      optimizer = terngrad.keras.recipe_optimizer('muloco')
      model.compile(optimizer, loss)
      model.fit(x, y, callbacks=[terngrad.keras.LocalSteps(recipe='muloco')])

  Its learning rate is that of the recipe; everything else, such as the weight
  decay, is Keras's default. `keras.optimizers.Muon` updates variables of two
  axes by Muon and all others by AdamW; name the last layer in `exclude_layers`,
  as Keras recommends.

  Args:
    recipe: a name, as for `terngrad.keras.LocalSteps`.
    **options: arguments of the class of Keras, instead of the defaults.

  Raises:
    ValueError: the recipe is unknown.
    errors.ConfigError: this version of Keras has another Muon.
  """
  found = catalog.find(recipe)
  create: Any = getattr(keras.optimizers, _class_of(recipe), None)
  known = inspect.signature(create).parameters if create else ()
  if _class_of(recipe) == 'Muon' and 'rms_rate' not in known:
    raise errors.ConfigError(
      f'recipe_optimizer: expected keras.optimizers.Muon with the option '
      f'rms_rate, for which the rate of {recipe} is; received Keras '
      f'{keras.__version__}. Install a newer Keras.'
    )
  defaults = {'learning_rate': found.inner_learning_rate}
  return create(**defaults | options)


def compare(recipe: str, optimizer: keras.optimizers.Optimizer) -> None:
  """Logs if a model does not have the inner optimizer of its recipe."""
  while hasattr(optimizer, 'inner_optimizer'):
    # `compile` wraps it for mixed precision.
    optimizer = optimizer.inner_optimizer
  received, expected = type(optimizer).__name__, _class_of(recipe)
  if not isinstance(optimizer, getattr(keras.optimizers, expected)):
    logging.warning(
      'Local steps: recipe %s trains by %s, this model by %s. Compile it with '
      'terngrad.keras.recipe_optimizer(%r) to follow the recipe.',
      *(recipe, expected, received, recipe),
    )


def _class_of(recipe: str) -> str:
  return _CLASSES[spelling.split(catalog.find(recipe).inner)[0]]
