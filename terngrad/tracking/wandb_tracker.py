"""Logs to Weights & Biases, https://docs.wandb.ai/ref/python."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from terngrad.tracking import trackers

# Unless WANDB_PROJECT names another.
_PROJECT = 'terngrad'


class WandbTracker:
  """A run of Weights & Biases.

  Attributes:
    identity: see `trackers.Tracker`.
  """

  def __init__(self, run: Any, is_active: bool) -> None:
    """Wraps a `wandb.Run`, which the program itself ends if `is_active`."""
    self._run = run
    self._is_active = is_active
    self.identity = {'id': str(run.id), 'project': str(run.project)}

  def log(self, step: int, values: Mapping[str, float]) -> None:
    """Logs numbers of one step; wandb merges those of the same step."""
    self._run.log(dict(values), step=step)

  def close(self, failed: bool) -> None:
    """Ends the run."""
    if not self._is_active:
      self._run.finish(exit_code=int(failed))


def find_active() -> str:
  """Returns the id of a run that the program began with `wandb.init`, or ''."""
  run = getattr(sys.modules.get('wandb'), 'run', None)
  return '' if run is None else str(run.id)


def start(run: trackers.TrackedRun) -> WandbTracker:
  """Begins a run, or continues that of `run.identity` or `run.active`."""
  import wandb

  if run.active:
    wandb.run.config.update(dict(run.options), allow_val_change=True)
    return WandbTracker(wandb.run, is_active=True)
  begun = wandb.init(
    id=run.identity.get('id'),
    project=run.identity.get('project')
    or os.environ.get('WANDB_PROJECT', _PROJECT),
    name=None if run.identity else run.name,
    dir=os.environ.get('WANDB_DIR', run.folder),
    config=dict(run.options),
    resume='allow',
    allow_val_change=True,
  )
  return WandbTracker(begun, is_active=False)
