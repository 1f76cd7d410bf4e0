"""Logs to MLflow, https://mlflow.org/docs/latest/ml/tracking."""

import sys
from collections.abc import Mapping
from typing import Any

from terngrad.tracking import trackers

# What MLflow accepts in one call.
_MOST_PARAMS = 100


class MlflowTracker:
  """A run of MLflow.

  Attributes:
    identity: see `trackers.Tracker`.
  """

  def __init__(self, client: Any, run: Any, is_active: bool) -> None:
    """Wraps an `mlflow.entities.Run`, which the program ends if `is_active`."""
    self._client = client
    self._is_active = is_active
    self.identity = {'run_id': str(run.info.run_id)}
    # The newest step of each metric. MLflow keeps several values of a step: it
    # would show those twice that a killed run logged after its last checkpoint.
    self._last = {
      name: max(one.step for one in client.get_metric_history(self._id, name))
      for name in run.data.metrics
    }

  @property
  def _id(self) -> str:
    return self.identity['run_id']

  def log(self, step: int, values: Mapping[str, float]) -> None:
    """Logs numbers of one step, except those that the run has already."""
    import mlflow

    fresh = {
      name: float(value)
      for name, value in values.items()
      if step > self._last.get(name, -1)
    }
    if fresh:
      self._last.update(dict.fromkeys(fresh, step))
      mlflow.log_metrics(fresh, step=step, run_id=self._id)

  def close(self, failed: bool) -> None:
    """Marks the run as finished or failed."""
    if not self._is_active:
      status = 'FAILED' if failed else 'FINISHED'
      self._client.set_terminated(self._id, status)


def find_active() -> str:
  """Returns the id of the run that the program began, or ''."""
  mlflow = sys.modules.get('mlflow')
  run = mlflow.active_run() if mlflow else None
  return '' if run is None else str(run.info.run_id)


def start(run: trackers.TrackedRun) -> MlflowTracker:
  """Begins a run, or continues that of `run.identity` or `run.active`."""
  import mlflow

  client = mlflow.MlflowClient()
  known = run.active or run.identity.get('run_id')
  if not run.active:
    # It is active only in this thread.
    begun = mlflow.start_run(known, run_name=None if known else run.name)
    known = begun.info.run_id
  begun = client.get_run(known)
  _log_params(run.options, begun)
  return MlflowTracker(client, begun, is_active=bool(run.active))


def _log_params(options: Mapping[str, object], run: Any) -> None:
  """Logs options that the run does not have yet: MLflow changes none."""
  import mlflow

  fresh = [(k, v) for k, v in options.items() if k not in run.data.params]
  for start in range(0, len(fresh), _MOST_PARAMS):
    mlflow.log_params(
      dict(fresh[start : start + _MOST_PARAMS]), run_id=run.info.run_id
    )
