"""Checkpoints: everything a run needs to continue bit for bit.

A checkpoint `model.ckpt-<step>` holds the number of steps, a layout (JSON: the
net, the optimizer, which devices are stored) and, as `tower_<index>`, the
variables of one device or of all devices. Replicas are bit-identical, so one is
enough to resume. `states` holds the states described in `stored_states`.
TensorFlow writes the files under temporary names, renames them, and replaces
the list of checkpoints last. A run that is killed at any moment therefore
leaves the last complete checkpoint intact. `Writer.save` syncs its files to the
disk before it returns, so they survive a power cut.
"""

import contextlib
import json
import os
import pathlib
import types
import typing
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from slim.datasets.records import disk
from terngrad import errors
from terngrad.checkpoint import keys as keys_lib
from terngrad.checkpoint import listing
from terngrad.step import replicas as replica_lib

NAME = listing.NAME
# Name of the digest of the vocabulary among what a resumed run must keep.
TOKENIZER = 'tokenizer'
# Numbers of a layout that are at least 1, and at most this.
_COUNTS, _MOST = ('num_classes', 'num_devices', 'num_workers'), 2**20
# The value of an option, as JSON stores it.
Value = str | int | float | list[Any] | None
# The types of recorded options that are used again, not only compared or shown.
_USED_AGAIN = {
  'image_size': int,
  'labels_offset': int,
  'preprocessing': str,
  'codec': str,
  'dataset_name': str,
  TOKENIZER: str,
}


# What TensorFlow raises for damaged checkpoints.
UNREADABLE = (IndexError, RecursionError, ValueError, tf.errors.OpError)


class Layout(NamedTuple):
  """The description of a run that a checkpoint stores.

  Attributes:
    net: name of the net.
    num_classes: logits of the net.
    optimizer: the optimizer's name, without its options.
    num_devices: devices of the run.
    num_workers: nodes of the run.
    places: indices of the devices whose variables are stored.
    max_steps: the last step of the run.
    batch_size: examples per step.
    seed: seed of the run.
    dataset_name: name of the data set.
    subset: subset of the data set.
    codec: name of the gradient codec.
    dtype: dtype of the layers' computations.
    bn_statistics: 'averaged' or 'per_device'.
    trainable_scopes: scopes of the trained variables; '' for all.
    kept: no longer written: error-feedback residuals are among the `states`.
      `seed`, `dataset_name`, `subset`, `codec` and `trainable_scopes` are no
      longer written either: the next two fields hold them.
    must_keep: by name, the values that a resumed run may not change: options
      declared as fixed, and values that several options determine.
    may_change: by name, the values that a resumed run may change. The run then
      no longer ends with the same bits.

  Checkpoints written before a field existed lack it, and get its default.
  """

  net: str
  num_classes: int
  optimizer: str
  num_devices: int
  num_workers: int
  places: list[int]
  max_steps: int
  batch_size: int | None = None
  seed: int | None = None
  dataset_name: str | None = None
  subset: str | None = None
  codec: str | None = None
  dtype: str = 'float32'
  bn_statistics: str = 'averaged'
  trainable_scopes: str = ''
  kept: str = ''
  must_keep: dict[str, Value] | None = None
  may_change: dict[str, Value] | None = None


class Writer:
  """Writes the checkpoints of one run and keeps the newest."""

  def __init__(
    self,
    directory: str,
    layout: Layout,
    replicas: Sequence[replica_lib.Replica],
    names: Sequence[str],
    more: Mapping[str, Mapping[str, tf.Variable]] | None = None,
    keep: int = 5,
  ) -> None:
    """Opens an existing directory.

    Args:
      directory: path. An unreadable list of checkpoints in it is rewritten.
      layout: stored with every checkpoint.
      replicas: all replicas of the run.
      names: names of a replica's variables, in the order of `variables()`.
      more: additional dicts of variables to store, by the dict's name.
      keep: number of newest checkpoints to keep, >= 1.
    """
    self._replicas = replicas
    self._names = names
    self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
    towers = {
      f'tower_{index}': dict(
        zip(names, replicas[index].variables(), strict=True)
      )
      for index in layout.places
    }
    listing.repair(directory)
    self._manager = tf.train.CheckpointManager(
      tf.train.Checkpoint(
        step=self._step,
        layout=tf.Variable(json.dumps(layout._asdict()), trainable=False),
        **towers,
        **(more or {}),
      ),
      directory,
      max_to_keep=keep,
      checkpoint_name=NAME,
    )

  def save(self, step: int) -> str:
    """Checks that the replicas are equal and finite, and writes a checkpoint.

    `step` is the number of steps taken.

    Returns:
      The checkpoint's path prefix.

    Raises:
      errors.TrainingError: replicas differ or are not finite, or the files
        cannot be written.
    """
    replica_lib.check_equal(self._replicas, self._names)
    has_local = self._replicas[0].local_statistics
    for replica in self._replicas[: None if has_local else 1]:
      replica_lib.check_finite(replica, self._names)
    self._step.assign(step)
    # A save that fails may have changed the manager's list, but not the file.
    last = self._manager.latest_checkpoint
    try:
      # Write from this process's machine, wherever the variables are.
      options = tf.train.CheckpointOptions(
        experimental_io_device=self._step.device
      )
      path = self._manager.save(checkpoint_number=step, options=options)
      folder = pathlib.Path(self._manager.directory)
      for file in (*folder.glob(f'{NAME}-{step}.*'), folder / 'checkpoint'):
        disk.sync(file)
      disk.sync(folder)
      return path
    except (OSError, tf.errors.OpError) as error:
      raise errors.TrainingError(
        f'Checkpoint: expected to write step {step} to '
        f'{self._manager.directory}, received: {error}. Free some space or '
        'repair the folder, and run the same command again; the last '
        f'checkpoint is {last}.'
      ) from error


def newest(directory: str) -> str | None:
  """Returns the path prefix of the newest readable checkpoint.

  Returns None if the directory has none or does not exist.
  """
  for path in reversed(listing.prefixes(directory)):
    try:
      reader = tf.train.load_checkpoint(path)
      # Read every tensor: a truncated file is readable up to the cut.
      for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)
      if reader.has_tensor('step' + keys_lib.VALUE):
        return path
      logging.warning('Checkpoint %s was written by another program', path)
    except UNREADABLE as error:
      logging.warning('Checkpoint %s cannot be read: %s', path, error)
  return None


def check_empty(directory: str) -> None:
  """Raises `errors.CheckpointError` if a directory contains checkpoints.

  Called when `newest` finds no readable checkpoint: a new run must not
  overwrite a run whose checkpoints only need repair.
  """
  folder = pathlib.Path(directory)
  found = sorted(folder.glob('*.index')) if folder.is_dir() else []
  if found or listing.prefixes(directory):
    raise errors.CheckpointError(
      f'{directory}: expected no checkpoints or a readable one, received '
      f'{found[0].name if found else "a list of missing ones"}, which is '
      'damaged or from another program. Repair it, choose another --train_dir, '
      'or give --overwrite.'
    )


def find(path: str) -> str:
  """Resolves a user's path: a checkpoint prefix, or a directory's newest one.

  Raises:
    errors.CheckpointError: there is no checkpoint.
  """
  if os.path.isdir(path):
    found = newest(path)
  else:
    found = path if is_prefix(path) else None
  if found is None:
    raise errors.CheckpointError(
      f'{path}: expected a checkpoint prefix (.../{NAME}-1000) or a folder '
      'with readable checkpoints, received neither. Check the path.'
    )
  return found


def is_prefix(path: str) -> bool:
  """Returns whether a path is the prefix of a checkpoint."""
  return os.path.exists(path + '.index')


def step_of(path: str) -> int:
  """Returns the number of steps taken before a checkpoint was written.

  Raises:
    errors.CheckpointError: the checkpoint cannot be read.
  """
  with explain_damage(path):
    reader = tf.train.load_checkpoint(path)
    return whole_number(reader.get_tensor('step' + keys_lib.VALUE))


def whole_number(value: np.ndarray) -> int:
  """Returns a number of steps that a checkpoint stores in any numeric type.

  Raises:
    ValueError: it is no number, or negative.
  """
  found = np.asarray(value)
  if found.size != 1 or found.dtype.kind not in 'iuf' or not 0 <= found < 2**63:
    raise ValueError(f'the number of steps is {value!r}.')
  return int(found.item())


@contextlib.contextmanager
def explain_damage(path: str) -> Iterator[None]:
  """Context in which errors of reading a checkpoint are `CheckpointError`s."""
  try:
    yield
  except UNREADABLE as error:
    raise errors.CheckpointError(
      f'{path}: expected a checkpoint that can be read, received: {error} '
      'Restore its files, or give another folder.'
    ) from error


def read_layout(path: str) -> Layout:
  """Reads the layout of a checkpoint.

  Raises:
    errors.CheckpointError: this package did not write the checkpoint.
  """
  try:
    text = tf.train.load_checkpoint(path).get_tensor('layout' + keys_lib.VALUE)
    layout = Layout(**json.loads(text))
    _check_values(layout)
    return layout
  except (TypeError, *UNREADABLE) as error:
    raise errors.CheckpointError(
      f'{path}: expected a checkpoint of this package, received one without a '
      f'layout that can be read ({error}). Choose another, or train again.'
    ) from error


def _check_values(layout: Layout) -> None:
  """Checks a layout that a file describes.

  Raises:
    ValueError: a value has another type, or is out of range.
  """
  for name, hint in typing.get_type_hints(Layout).items():
    value = getattr(layout, name)
    allowed = (
      typing.get_args(hint)
      if typing.get_origin(hint) is types.UnionType
      else [hint]
    )
    kinds = [typing.get_origin(one) or one for one in allowed]
    is_count = name in _COUNTS
    if type(value) not in kinds or is_count and not 0 < value <= _MOST:
      raise ValueError(f'{name} is {value!r}')
  places, known = layout.places, range(layout.num_devices)
  if not places or any(place not in known for place in places):
    raise ValueError(f'places is {places!r}')
  for recorded in (layout.must_keep or {}, layout.may_change or {}):
    for name, value in recorded.items():
      if not _can_be_recorded(name, value):
        raise ValueError(f'{name} is {value!r}')


def _can_be_recorded(name: str, value: Any) -> bool:
  """Returns whether an option of a run may have a value."""
  kind = _USED_AGAIN.get(name)
  if kind is int:
    return type(value) is int and abs(value) <= _MOST
  return isinstance(value, str) if kind else not isinstance(value, dict)


def names_of(path: str, device_index: int) -> set[str]:
  """Returns the names of one device's variables."""
  keys = tf.train.load_checkpoint(path).get_variable_to_shape_map()
  return {keys_lib.name_of(f'tower_{device_index}', key) for key in keys} - {''}


def check_variables(
  path: str, device_index: int, variables: Mapping[str, tf.Variable]
) -> None:
  """Checks that `restore` can assign all variables.

  Args:
    path: checkpoint prefix.
    device_index: index of a stored device.
    variables: by name in the checkpoint.

  Raises:
    errors.CheckpointError: a name is missing or has another shape or dtype.
  """
  reader = tf.train.load_checkpoint(path)
  shapes = reader.get_variable_to_shape_map()
  dtypes = reader.get_variable_to_dtype_map()
  for name, variable in variables.items():
    key = keys_lib.key_of(f'tower_{device_index}', name)
    expected = variable.dtype.name, variable.shape.as_list()
    received = (dtypes[key].name, shapes[key]) if key in shapes else None
    if received != expected:
      raise errors.CheckpointError(
        f'{path}: expected {name} of {_described(expected)}, received '
        f'{_described(received)}. It belongs to another net, image size or '
        'optimizer: give the flags it was trained with, or another folder.'
      )


def _described(tensor: tuple[str, list[int]] | None) -> str:
  if tensor is None:
    return 'none'
  return 'dtype {} and shape {}'.format(*tensor)


def restore(
  path: str, device_index: int, variables: Mapping[str, tf.Variable]
) -> None:
  """Assigns the stored values of one device to variables.

  Args:
    path: checkpoint prefix.
    device_index: index of a stored device.
    variables: by name in the checkpoint.

  Raises:
    errors.CheckpointError: a name is missing or has another shape or dtype,
      then no variable has changed; or a value cannot be read.
  """
  check_variables(path, device_index, variables)
  reader = tf.train.load_checkpoint(path)
  for name, variable in variables.items():
    with explain_damage(path):
      value = reader.get_tensor(keys_lib.key_of(f'tower_{device_index}', name))
    variable.assign(value)


def check_layout(
  path: str, layout: Layout, expected: Mapping[str, Value]
) -> None:
  """Raises `errors.CheckpointError` if fields differ from `expected`.

  Args:
    path: path of the checkpoint, for the error message.
    layout: layout of the checkpoint.
    expected: values by field name.
  """
  for field, value in expected.items():
    received = getattr(layout, field)
    if received != value:
      raise mismatch(path, field, value, received)


def tokenizer_of(layout: Layout) -> Value:
  """Returns the `tokenizer_digest` of a net's text; None if not recorded."""
  return (layout.must_keep or {}).get(TOKENIZER)


def check_tokenizer(path: str, layout: Layout, digest: str) -> None:
  """Raises `errors.CheckpointError` if a net was trained with other tokens.

  Args:
    path: path of the checkpoint, for the error message.
    layout: layout of the checkpoint. Older ones do not tell the vocabulary.
    digest: `tokenizer_digest` of the text.
  """
  trained = tokenizer_of(layout)
  if trained not in (None, digest):
    raise mismatch(path, TOKENIZER, digest, trained)


def check_float_steps(
  path: str, step: int, float_steps: int, lacking: Sequence[str]
) -> None:
  """Refuses to begin after the float32 steps that compute a method's states.

  Args:
    path: path of the checkpoint, for the error message.
    step: step to begin at.
    float_steps: number of first steps that compute the states; 0 for none.
    lacking: names of shared states of methods that the checkpoint lacks.

  Raises:
    errors.CheckpointError: later steps would need such a state.
  """
  if lacking and 0 < float_steps <= step:
    raise errors.CheckpointError(
      f'{path}: expected {lacking[0]}, which the first {float_steps} steps of '
      f'--codec compute, received a checkpoint of step {step} without it. '
      f'Raise warm_up in --codec, to {step + float_steps} for example, or '
      'start again at step 0.'
    )


def mismatch(
  path: str, name: str, expected: Value, received: Value
) -> errors.CheckpointError:
  """Returns the error for a checkpoint of a run with another configuration."""
  return errors.CheckpointError(
    f'{path}: expected a checkpoint with {name} {_shown(expected)}, received '
    f'one with {_shown(received)}. Give the flags it was trained with, or '
    'another folder.'
  )


def _shown(value: Value) -> Value:
  return "''" if value == '' else value
