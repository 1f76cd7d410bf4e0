"""Stores the states of local steps in the files of a Keras model."""

from collections.abc import Mapping
from collections.abc import MutableMapping

import numpy as np
from keras.src.saving import keras_saveable

from terngrad.local import local_steps

# The attribute of a model, and the group in its files.
ATTRIBUTE = 'local_steps'


class SavedStates(keras_saveable.KerasSaveable):
  """An attribute of a model that Keras saves with its weights.

  Keras has no public class for this. `Model.save`, `save_weights`,
  `ModelCheckpoint` and `BackupAndRestore` write it; `load_weights` and
  `BackupAndRestore` read it, while the model has the attribute.
  """

  def __init__(self, steps: local_steps.LocalSteps) -> None:
    """Takes the local steps whose states are saved."""
    self._steps = steps

  def is_chief(self) -> bool:
    """Whether this process is the first of those that exchange."""
    return self._steps.rank == 0

  def _obj_type(self) -> str:
    # Of Keras's kinds, the one with the fewest attributes.
    return 'Loss'

  def save_own_variables(self, store: MutableMapping[str, np.ndarray]) -> None:
    """Writes the states; waits for an exchange that is on its way."""
    for name, array in self._steps.get_states().items():
      store[name] = array

  def load_own_variables(self, store: Mapping[str, np.ndarray]) -> None:
    """Reads the states for the next `fit`; a file may have none."""
    self._steps.load({name: np.array(store[name]) for name in store.keys()})
