"""Values of variables in files: other runs', TensorFlow 1's and Keras's."""

import abc
import os
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import listing
from terngrad.checkpoint import tf1_names


class WeightSource(abc.ABC):
  """Where values are read from.

  Attributes:
    path: of the file, for messages.
    shapes: dict of our name to the shape, a list, of what stands there.
    unexpected: names in the file that are not understood.
    step: steps taken before it was written; 0 where it does not say.
  """

  def __init__(
    self,
    path: str,
    shapes: dict[str, list[int]],
    unexpected: list[str],
    step: int,
  ) -> None:
    """Takes what all sources have; see the class."""
    self.path = path
    self.shapes = shapes
    self.unexpected = unexpected
    self.step = step

  @abc.abstractmethod
  def read(self, name: str) -> np.ndarray:
    """The value of one of the names of `shapes`."""


class _Checkpoint(WeightSource):
  """Values in a checkpoint."""

  def __init__(
    self,
    path: str,
    # TensorFlow has no public name for its class.
    reader: Any,
    known: dict[str, str],
    unexpected: list[str],
    step: int,
  ) -> None:
    """Reads shapes; `known` are keys of the checkpoint by our names."""
    shapes = reader.get_variable_to_shape_map()
    super().__init__(
      path,
      {name: list(shapes[key]) for name, key in known.items()},
      unexpected,
      step,
    )
    self._reader = reader
    self._known = known

  def read(self, name: str) -> np.ndarray:
    """See `WeightSource.read`."""
    return self._reader.get_tensor(self._known[name])


def of_checkpoint(path: str, net: str) -> WeightSource:
  """The values of a checkpoint, of this package or of TensorFlow 1.

  Args:
    path: prefix, file of TensorFlow 1's first format, or folder, of which the
      newest is taken.
    net: name in `slim.nets.factory.NETS`, by which foreign names are read.

  Raises:
    errors.CheckpointError: there is none that can be read.
  """
  path = _find(path)
  try:
    reader = tf.train.load_checkpoint(path)
    shapes = reader.get_variable_to_shape_map()
  except (ValueError, tf.errors.OpError) as error:
    raise errors.CheckpointError(
      f'{path}: expected a checkpoint that can be read, received: {error}. It '
      'is damaged or something else; take another.'
    ) from error
  own = checkpoints.is_own(reader)
  if own:
    device_index = checkpoints.read_layout(path).places[0]
    names = {key: checkpoints.name_of(key, device_index) for key in shapes}
    step = checkpoints.step_of(path)
  else:
    names = {key: tf1_names.ours(net, key) for key in shapes}
    step = _foreign_step(reader)
  # Of the towers of 2017, which say the same, the first.
  known = {name: key for key, name in sorted(names.items())[::-1] if name}
  # Of our own only other devices' values, and what is no value.
  unexpected = sorted(k for k, name in names.items() if not (name or own))
  return _Checkpoint(path, reader, known, unexpected, step)


def _find(path):
  """The checkpoint of a folder, or the path itself."""
  if not os.path.isdir(path):
    # TensorFlow 1's first format is one file, without an index.
    return path if os.path.isfile(path) else checkpoints.find(path)
  own = checkpoints.newest(path)
  if own is not None:
    return own
  latest = tf.train.latest_checkpoint(path) if listing.read(path) else None
  return latest if latest is not None else checkpoints.find(path)


def _foreign_step(reader):
  if not reader.has_tensor('global_step'):
    return 0
  # The 2017 code counted in float32.
  return int(reader.get_tensor('global_step'))
