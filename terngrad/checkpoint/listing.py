"""Which checkpoints stand in a folder, and TensorFlow's list of them."""

import os
import pathlib

# TensorFlow has no public name for the class of a list.
from typing import Any

import tensorflow as tf
from absl import logging

from slim.datasets.records import disk

NAME = 'model.ckpt'


def read(directory: str | os.PathLike[str]) -> Any:
  """TensorFlow's list of a folder's checkpoints.

  Args:
    directory: path; need not exist.

  Returns:
    A `CheckpointState`, or None where there is none that can be read.
  """
  try:
    return tf.train.get_checkpoint_state(directory)
  except ValueError as error:
    logging.warning('%s: list of checkpoints is damaged: %s', directory, error)
    return None


def prefixes(directory: str | os.PathLike[str]) -> list[str]:
  """The checkpoints of a folder, which may be damaged, oldest first.

  Those of the list; where it cannot be read, or names what is not there, those
  that stand there too.

  Args:
    directory: path; need not exist.
  """
  state = read(directory)
  listed = list(state.all_model_checkpoint_paths) if state else []
  if listed and all(os.path.exists(f'{path}.index') for path in listed):
    return listed
  standing = _standing(directory)
  return [path for path in listed if path not in standing] + standing


def _standing(directory: str | os.PathLike[str]) -> list[str]:
  """Prefixes of the files of checkpoints in a folder, by step."""
  found = pathlib.Path(directory).glob(f'{NAME}-*.index')
  numbers = [path.stem.removeprefix(f'{NAME}-') for path in found]
  steps = sorted(int(number) for number in numbers if number.isdecimal())
  return [os.path.join(directory, f'{NAME}-{step}') for step in steps]


def mend(directory: str | os.PathLike[str]) -> None:
  """Writes the list of a folder anew where it cannot be read.

  TensorFlow refuses to go on with such a list, and deletes only the old
  checkpoints that the list names.

  Args:
    directory: path of a folder.

  Raises:
    OSError: it cannot be written.
  """
  path = pathlib.Path(directory, 'checkpoint')
  if not path.exists() or read(directory):
    return
  standing = _standing(directory)
  if not standing:
    path.unlink()
    return
  names = [os.path.basename(prefix) for prefix in standing]
  times = [os.path.getmtime(f'{prefix}.index') for prefix in standing]
  lines = [f'model_checkpoint_path: "{names[-1]}"']
  lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
  lines += [f'all_model_checkpoint_timestamps: {time!r}' for time in times]
  disk.write_text(path, '\n'.join(lines) + '\n')
