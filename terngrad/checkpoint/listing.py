"""The checkpoints in a directory, and TensorFlow's list of them."""

import os
import pathlib

# TensorFlow has no public name for the class of the list.
from typing import Any

import tensorflow as tf
from absl import logging

from slim.datasets.records import disk

NAME = 'model.ckpt'


def read(directory: str | os.PathLike[str]) -> Any:
  """Reads TensorFlow's list of a directory's checkpoints.

  Args:
    directory: path; need not exist.

  Returns:
    A `CheckpointState`, or None if no readable list exists.
  """
  try:
    return tf.train.get_checkpoint_state(directory)
  except ValueError as error:
    logging.warning('%s: list of checkpoints is damaged: %s', directory, error)
    return None


def prefixes(directory: str | os.PathLike[str]) -> list[str]:
  """Returns the checkpoints of a directory, oldest first; some may be damaged.

  Returns the listed checkpoints. If the list is unreadable or names missing
  files, the checkpoints found in the directory are added.

  Args:
    directory: path; need not exist.
  """
  state = read(directory)
  listed = list(state.all_model_checkpoint_paths) if state else []
  if listed and all(os.path.exists(f'{path}.index') for path in listed):
    return listed
  found = _find_prefixes(directory)
  return [path for path in listed if path not in found] + found


def _find_prefixes(directory: str | os.PathLike[str]) -> list[str]:
  """Returns the prefixes of the checkpoint files in a directory, by step."""
  found = pathlib.Path(directory).glob(f'{NAME}-*.index')
  numbers = [path.stem.removeprefix(f'{NAME}-') for path in found]
  steps = sorted(int(number) for number in numbers if number.isdecimal())
  return [os.path.join(directory, f'{NAME}-{step}') for step in steps]


def repair(directory: str | os.PathLike[str]) -> None:
  """Rewrites a directory's list of checkpoints if it is unreadable.

  TensorFlow does not continue with an unreadable list, and it deletes old
  checkpoints only if the list names them.

  Raises:
    OSError: the list cannot be written.
  """
  path = pathlib.Path(directory, 'checkpoint')
  if not path.exists() or read(directory):
    return
  found = _find_prefixes(directory)
  if not found:
    path.unlink()
    return
  names = [os.path.basename(prefix) for prefix in found]
  times = [os.path.getmtime(f'{prefix}.index') for prefix in found]
  lines = [f'model_checkpoint_path: "{names[-1]}"']
  lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
  lines += [f'all_model_checkpoint_timestamps: {time!r}' for time in times]
  disk.write_text(path, '\n'.join(lines) + '\n')
