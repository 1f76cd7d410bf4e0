"""Records of `fit`: in a file, in TensorBoard and in experiment trackers."""

import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from terngrad import arguments
from terngrad import errors
from terngrad.keras import saved_states
from terngrad.tracking import trackers
from terngrad.training import records


class ExperimentLogger(keras.callbacks.Callback):
  """Writes the logs of `fit` to `metrics.jsonl` and to experiment trackers.

  Every record has the names of Keras's logs and a step: the optimizer's
  `iterations`, which are the completed steps. A metric with several values,
  such as `F1Score`, gets a name for each: 'f1_score/0', 'f1_score/1'. A later
  `fit` with the same folder continues: lines of steps after the optimizer's
  `iterations` are dropped, and the runs in Weights & Biases and MLflow go on.
  If the program itself began a run there, by `wandb.init` or
  `mlflow.start_run`, the callback logs to that run and does not end it. Of
  several processes only the chief writes; with `LocalSteps` it is the first
  one. If a tracker fails, one warning is logged and training goes on.

  Put it after callbacks that add to the logs, such as `CompressionMetrics`.
  """

  def __init__(
    self,
    folder: str | os.PathLike[str],
    log_to: str | Sequence[str] = (trackers.TENSORBOARD,),
    every: int = 10,
    options: Mapping[str, Any] | None = None,
  ) -> None:
    """Creates the callback; nothing is written before `fit`.

    Args:
      folder: path of the folder for `metrics.jsonl` and TensorBoard's events.
        One folder is one run.
      log_to: names of 'tensorboard', 'wandb' and 'mlflow', as a sequence or
        separated by commas. Empty: only `metrics.jsonl`.
      every: steps between records within an epoch. Each waits for the step to
        finish. With `steps_per_execution` a record waits for the end of an
        execution.
      options: numbers and texts by name that trackers show beside the metrics,
        such as the batch size.

    Raises:
      ValueError: a tracker is unknown or not installed, or `every` is less than
        1.
    """
    super().__init__()
    self.every = arguments.whole_number('every', every, 1)
    if isinstance(log_to, str):
      log_to = [name for name in log_to.split(',') if name]
    trackers.check(log_to)
    trackers.check_installed(log_to)
    self._folder = folder
    self._log_to = tuple(log_to)
    self._options = dict(options or {})
    # None in processes that write nothing.
    self._recorder: records.Recorder | None = None
    # The batch of the last record in this epoch.
    self._last_batch = -1

  def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
    """Closes the records that an interrupted `fit` left open."""
    self.on_train_end(logs)

  def on_epoch_begin(
    self, epoch: int, logs: dict[str, Any] | None = None
  ) -> None:
    """Opens the records on the chief, in the first epoch of `fit`."""
    del epoch, logs
    self._last_batch = -1
    # Not in on_train_begin, where a later callback may restore the step.
    if not self._recorder and _is_chief(self.model):
      with errors.explain_write_errors('ExperimentLogger'):
        os.makedirs(self._folder, exist_ok=True)
        self._recorder = records.Recorder(
          self._folder, self._step(), self._log_to, self._options
        )

  def on_train_batch_end(
    self, batch: int, logs: dict[str, Any] | None = None
  ) -> None:
    """Records the logs once in `every` steps."""
    if batch - self._last_batch >= self.every:
      self._last_batch = batch
      self._record(logs)

  def on_epoch_end(
    self, epoch: int, logs: dict[str, Any] | None = None
  ) -> None:
    """Records the logs of the epoch, with its number from 1."""
    self._record({'epoch': epoch + 1, **(logs or {})})

  def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
    """Closes the records."""
    del logs
    if self._recorder:
      self._recorder.close()
      self._recorder = None

  def _step(self) -> int:
    return int(self.model.optimizer.iterations)

  def _record(self, logs: dict[str, Any] | None) -> None:
    if self._recorder and logs:
      self._recorder.scalars(self._step(), _flatten(logs))


def _is_chief(model: keras.Model) -> bool:
  """Whether this process writes, of those of a strategy or of local steps."""
  local: saved_states.SavedStates | None = getattr(
    model, saved_states.ATTRIBUTE, None
  )
  is_chief: bool = model.distribute_strategy.extended.should_save_summary
  return is_chief and (local is None or local.is_chief())


def _flatten(logs: Mapping[str, Any]) -> dict[str, float]:
  """Returns numbers by name; those of an array by 'name/index'."""
  arrays = {
    name: keras.ops.convert_to_numpy(value)
    if keras.ops.is_tensor(value)
    else value
    for name, value in logs.items()
  }
  return {
    '/'.join([name, *map(str, index)]): float(number)
    for name, array in arrays.items()
    for index, number in np.ndenumerate(array)
  }
