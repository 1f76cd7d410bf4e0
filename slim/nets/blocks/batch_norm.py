"""Changes the batch normalization of a built net."""

import keras

from slim import errors


def find_layers(model: keras.Model) -> list[keras.layers.BatchNormalization]:
  """Returns the batch normalizations of a model and its inner models."""
  found = []
  for layer in model.layers:
    if isinstance(layer, keras.layers.BatchNormalization):
      found.append(layer)
    elif isinstance(layer, keras.Model):
      found += find_layers(layer)
  return found


def set_decay(model: keras.Model, decay: float) -> None:
  """Sets the decay of the moving statistics of all batch normalizations.

  A training step replaces each moving mean and variance by
  `decay * old + (1 - decay) * batch`. They start at 0 and 1; after n steps,
  the start value still has the weight decay**n.

  Args:
    model: from `slim.nets.factory.build`; all its layers are changed.
    decay: in [0, 1).

  Raises:
    slim.errors.DataError: the net has no batch normalization.
  """
  normalized = find_layers(model)
  if not normalized:
    raise errors.DataError(
      'batch_norm_decay: expected a net with batch normalization, received '
      f'{model.name}, which has none. Omit --batch_norm_decay, or pass -1.'
    )
  for layer in normalized:
    layer.momentum = decay
