"""Resuming a run from its last checkpoint."""

import itertools
from collections.abc import Callable
from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import protocol
from terngrad.step import loss_scaling
from terngrad.step import replicas


class Restored(NamedTuple):
  """The step and states that a resumed run starts from.

  Attributes:
    step: steps taken before; 0 if there was no checkpoint.
    states: values by name, for `stored_states.Store.scatter`.
  """

  step: int
  states: dict[str, np.ndarray]


NOT_RESUMED = Restored(0, {})


def continue_run(
  train_dir: str, run: protocol.RestorableRun, report: Callable[[str], object]
) -> Restored:
  """Restores the newest checkpoint of a directory.

  Raises:
    errors.CheckpointError: the checkpoint is damaged, or its run has other
      variables or another value of a `must_keep` option, or ended the float32
      steps of a method without its states.
  """
  path = checkpoints.newest(train_dir)
  if path is None:
    checkpoints.check_empty(train_dir)
    return NOT_RESUMED
  layout, now = checkpoints.read_layout(path), run.layout
  for name, (before, value) in _changed(layout, 'must_keep', now).items():
    raise checkpoints.mismatch(path, name, value, before)
  stored = _load(run, path, layout)
  step = checkpoints.step_of(path)
  rest = f' of {now.max_steps}: nothing is left to do'
  report(
    f'{datetime.now()}: restored {path}, continuing after step {step}'
    f'{rest if step >= now.max_steps else ""}'
  )
  for name, (before, value) in _changed(layout, 'may_change', now).items():
    report(
      f'{name} was {before} before and is now {value}: the run will not end '
      'with the same bits'
    )
  states, missing, unused = run.store.read(path)
  # Shared states of methods are among the variables of a device.
  missing += [name for name in run.method_states if name not in stored]
  unused += sorted(stored - {*run.names, *loss_scaling.NAMES})
  for what, names in (
    ('lacks states of the run:', missing),
    ('holds states that the run does not use:', unused),
  ):
    if names:
      report(
        f'The checkpoint {what} {names[0]}'
        f'{f" and {len(names) - 1} more" if names[1:] else ""}; the run will '
        'not end with the same bits'
      )
  return Restored(step, states)


def _changed(
  layout: checkpoints.Layout, field: str, now: checkpoints.Layout
) -> dict[str, tuple[checkpoints.Value, checkpoints.Value]]:
  """Returns {name: (before, now)} for the values that changed.

  A layout without this field holds the values in its other fields.
  """
  before = getattr(layout, field)
  if before is None:
    before = layout._asdict()
  return {
    name: (before[name], value)
    for name, value in (getattr(now, field) or {}).items()
    if before.get(name) not in (None, value)
  }


def _load(
  run: protocol.RestorableRun, path: str, layout: checkpoints.Layout
) -> set[str]:
  """Restores all replicas from one device, and local variables per device.

  Returns the names of the variables that the checkpoint holds of one device.
  """
  first, device_index = run.replicas[0], layout.places[0]
  stored = checkpoints.names_of(path, device_index)
  # The loss scale starts again if the checkpoint has none. So do the methods'
  # shared states if the checkpoint's run used another method.
  left_out = set(run.method_states) - stored
  step = checkpoints.step_of(path)
  checkpoints.check_float_steps(path, step, run.float_steps, sorted(left_out))
  if layout.dtype != 'float16':
    left_out.update(loss_scaling.NAMES)
  restored = set(run.names) - left_out
  local = set(itertools.compress(run.names, first.is_local()))
  # Nothing is assigned before everything fits.
  for index, other in enumerate(run.replicas[1:], start=1):
    checkpoints.check_variables(path, index, _named(run, other, local))
  checkpoints.restore(path, device_index, _named(run, first, restored))
  for index, other in enumerate(run.replicas[1:], start=1):
    replicas.copy(first, other)
    checkpoints.restore(path, index, _named(run, other, local))
  return stored


def _named(
  run: protocol.RestorableRun, replica: replicas.Replica, names: Collection[str]
) -> dict[str, tf.Variable]:
  """Returns the variables of a replica with these names."""
  pairs = zip(run.names, replica.variables(), strict=True)
  return {name: variable for name, variable in pairs if name in names}
