"""Loads Keras files of users, without running code that they hold."""

import os
import zipfile
from collections.abc import Callable

import keras

# Registers the classes that a file may name.
import slim.nets.factory  # noqa: F401
import terngrad.keras  # noqa: F401
from terngrad import errors
from terngrad.keras import optimizer as optimizers
from terngrad.measure.planning import computing

_LONGEST_REASON = 300


def measure(
  path: str,
  batch_size: int,
  rounds: int,
  most_seconds: float,
  say: Callable[[str], None],
) -> computing.MeasuredModel:
  """Times a step of the model in a file; see `load` and `computing.measure`.

  `say` takes lines for the user.
  """
  model, optimizer, remark = load(path)
  say(f'timing a step of {path}, optimizer {remark}')
  if steps := optimizer.gradient_accumulation_steps:
    say(
      f'{path} accumulates gradients over {steps} steps, which Keras does on '
      'one replica only; the plan counts an exchange in every step'
    )
  found = computing.measure(model, optimizer, batch_size, rounds, most_seconds)
  say(computing.describe(found, batch_size))
  return found


def load(path: str) -> tuple[keras.Model, keras.optimizers.Optimizer, str]:
  """Loads a model and its optimizer from a Keras file.

  Keras's safe mode is on: Lambda layers and other code are refused.

  Args:
    path: a local file that ends in `.keras`.

  Returns:
    (the model; its optimizer without wrappers, or a new Adam; a remark on the
    optimizer, for the log).

  Raises:
    errors.ConfigError: there is no such file, or it cannot be loaded.
  """
  # Keras would also download remote paths, and reads older formats without
  # safe mode.
  if not path.endswith('.keras') or not os.path.isfile(path):
    raise errors.ConfigError(
      f'model: expected a file FILE.keras, received {path!r}. Write it by '
      "model.save('FILE.keras')."
    )
  if not zipfile.is_zipfile(path):
    raise errors.ConfigError(
      f'model: expected a file that model.save wrote, received {path!r}, which '
      "is damaged or another one. Write it by model.save('FILE.keras')."
    )
  try:
    model = keras.saving.load_model(path, safe_mode=True)
  except Exception:  # Of any kind: the file may hold anything.
    model = _load_bare(path)
  if not isinstance(model, keras.Model):
    raise errors.ConfigError(
      f'model: expected a keras.Model in {path!r}, received '
      f"{type(model).__name__}. Save the model by model.save('FILE.keras')."
    )
  # A model that was never compiled has no such attribute.
  optimizer = getattr(model, 'optimizer', None)
  if optimizer is None:
    return model, keras.optimizers.Adam(), 'Adam, since the file has none'
  inner = unwrap(optimizer)
  return model, inner, type(inner).__name__


def _load_bare(path: str) -> keras.Model:
  """Loads a model without its loss and optimizer, which may be unknown here."""
  try:
    return keras.saving.load_model(path, compile=False, safe_mode=True)
  except Exception as error:
    reason = ' '.join(str(error).split())[:_LONGEST_REASON]
    raise errors.ConfigError(
      f'model: expected a model that Keras loads in safe mode, received '
      f'{path!r} ({type(error).__name__}: {reason}). Save it without Lambda '
      'layers and without classes that are not registered, or give its size by '
      '--elements and --seconds.'
    ) from error


def unwrap(
  optimizer: keras.optimizers.Optimizer,
) -> keras.optimizers.Optimizer:
  """Removes compression and loss scaling from an optimizer."""
  while True:
    if isinstance(optimizer, optimizers.CompressedOptimizer):
      optimizer = optimizer.unwrap()
    elif isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
      optimizer = optimizer.inner_optimizer
    else:
      return optimizer
