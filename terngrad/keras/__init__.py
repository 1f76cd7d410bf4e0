"""Gradient compression for Keras: `CompressedOptimizer` wraps any optimizer."""

from typing import TYPE_CHECKING
from typing import Any

import keras

from terngrad.keras.local_steps import LocalStepsCallback as LocalSteps
from terngrad.keras.recipe_optimizers import recipe_optimizer

# The others compress inside TensorFlow's step. They are imported at once: an
# import of this package lets Keras load files with a `CompressedOptimizer`.
if TYPE_CHECKING or keras.backend.backend() == 'tensorflow':
  from terngrad.keras.experiment_logger import ExperimentLogger
  from terngrad.keras.metrics import CompressionMetrics
  from terngrad.keras.multi_worker import repair_multi_worker
  from terngrad.keras.optimizer import CompressedOptimizer
  from terngrad.keras.virtual import virtual_workers

__all__ = [
  'CompressedOptimizer',
  'CompressionMetrics',
  'ExperimentLogger',
  'LocalSteps',
  'recipe_optimizer',
  'repair_multi_worker',
  'virtual_workers',
]

_REMOVED = {
  'CompressedReduce': (
    'terngrad.keras.CompressedReduce was removed. Wrap the optimizer with '
    'terngrad.keras.CompressedOptimizer; in a custom training loop, call '
    'terngrad.compress on the gradients.'
  )
}


def __getattr__(name: str) -> Any:
  if name in _REMOVED:
    # `from terngrad.keras import NAME` hides the text of an AttributeError.
    raise ImportError(_REMOVED[name])
  if name in __all__:
    raise ImportError(
      f'terngrad.keras.{name}: expected KERAS_BACKEND=tensorflow, received '
      f'{keras.backend.backend()}. Use terngrad.keras.LocalSteps, which works '
      'with all backends.'
    )
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
