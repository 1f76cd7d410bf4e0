"""Weights in files: checkpoints of this package, of TensorFlow 1, and Keras."""

import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import keys
from terngrad.checkpoint import listing
from terngrad.checkpoint import tf1_names


class WeightSource(NamedTuple):
  """A file of weights, read one value at a time.

  Attributes:
    path: path of the file, for messages.
    shapes: shapes of the values in the file, by our names.
    unexpected: names in the file that match no variable of ours.
    step: steps taken before the file was written; 0 if it does not record them.
    read: takes a name in `shapes`, returns its value.
    tokenizer: digest of the tokens of a language model; None if unknown.
  """

  path: str
  shapes: dict[str, list[int]]
  unexpected: list[str]
  step: int
  read: Callable[[str], np.ndarray]
  tokenizer: checkpoints.Value = None


def open_checkpoint(path: str, net: str) -> WeightSource:
  """Opens a checkpoint of this package or of TensorFlow 1 as a weight source.

  Args:
    path: checkpoint prefix, file of TensorFlow 1's first format, or directory,
      of which the newest checkpoint is taken.
    net: name in `slim.nets.factory.NETS`; selects the rules that translate
      TensorFlow 1's names.

  Raises:
    errors.CheckpointError: there is no readable checkpoint.
  """
  path = _find(path)
  try:
    reader = tf.train.load_checkpoint(path)
    shapes = reader.get_variable_to_shape_map()
  except checkpoints.UNREADABLE as error:
    raise errors.CheckpointError(
      f'{path}: expected a checkpoint that can be read, received: {error}. It '
      'is damaged or no checkpoint; choose another file.'
    ) from error

  def read(name: str) -> np.ndarray:
    with checkpoints.explain_damage(path):
      return reader.get_tensor(known[name])

  is_ours = reader.has_tensor('layout' + keys.VALUE)
  tokenizer = None
  if is_ours:
    layout = checkpoints.read_layout(path)
    folder = f'tower_{layout.places[0]}'
    tokenizer = checkpoints.tokenizer_of(layout)
    names = {key: keys.name_of(folder, key) for key in shapes}
    step = checkpoints.step_of(path)
  else:
    names = {key: tf1_names.translate(net, key) for key in shapes}
    with checkpoints.explain_damage(path):
      # The 2017 code stores the step as float32.
      step = 0
      if reader.has_tensor('global_step'):
        step = checkpoints.whole_number(reader.get_tensor('global_step'))
  # The towers of 2017 hold the same values: take the first.
  known = {name: key for key, name in sorted(names.items())[::-1] if name}
  # In our checkpoints, unnamed keys are other devices' values or metadata.
  unexpected = sorted(k for k, name in names.items() if not (name or is_ours))
  return WeightSource(
    path,
    {name: list(shapes[key]) for name, key in known.items()},
    unexpected,
    step,
    read,
    tokenizer,
  )


def _find(path: str) -> str:
  """Returns the newest checkpoint of a directory, or the path itself."""
  if not os.path.isdir(path):
    # TensorFlow 1's first format is a single file, without an index.
    return path if os.path.isfile(path) else checkpoints.find(path)
  path_of_ours = checkpoints.newest(path)
  if path_of_ours is not None:
    return path_of_ours
  latest = tf.train.latest_checkpoint(path) if listing.read(path) else None
  return latest if latest is not None else checkpoints.find(path)
