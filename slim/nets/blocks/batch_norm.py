"""Batch normalization of a net that was built."""

import keras

from slim import errors


def layers_of(model: keras.Model) -> list[keras.layers.BatchNormalization]:
  """The batch normalizations of a model, also of models within it."""
  found = []
  for layer in model.layers:
    if isinstance(layer, keras.layers.BatchNormalization):
      found.append(layer)
    elif isinstance(layer, keras.Model):
      found += layers_of(layer)
  return found


def set_decay(model: keras.Model, decay: float) -> None:
  """Says how much of its moving statistics a training step keeps.

  A step makes `decay * old + (1 - decay) * batch` of each moving mean and
  variance; they begin at 0 and 1. After n steps a share of decay**n of them is
  still that beginning.

  Args:
    model: from `slim.nets.factory.build`; all its layers are changed.
    decay: in [0, 1).

  Raises:
    slim.errors.DataError: the net has no batch normalization.
  """
  normalized = layers_of(model)
  if not normalized:
    raise errors.DataError(
      'batch_norm_decay: expected a net with batch normalization, received '
      f'{model.name}, which has none. Leave --batch_norm_decay out, or say -1.'
    )
  for layer in normalized:
    layer.momentum = decay
