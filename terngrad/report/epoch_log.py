"""Log lines and epoch log in the format of Caffe2's trainer."""

import contextlib
import pathlib
from collections.abc import Mapping
from typing import Any

from terngrad.config import run as run_options
from terngrad.report import epochs
from terngrad.training import execution
from terngrad.training import metrics
from terngrad.training import records
from terngrad.training import run as run_lib


class EpochLog(execution.Hooks):
  """Logs a line per iteration and writes a CSV row after each epoch."""

  def __init__(
    self,
    path: pathlib.Path,
    flags: Mapping[str, Any],
    options: run_options.RunOptions,
    run: run_lib.Run,
  ) -> None:
    """Wraps the hooks of a run; writes nothing yet.

    Args:
      path: path of the epoch log.
      flags: flags of the command line, written to the log's first line.
      options: options of the run.
      run: the run whose hooks this object replaces.
    """
    super().__init__()
    others = self._run_hooks = run.hooks
    self.log_every, self.runs_ahead = others.log_every, others.runs_ahead
    self.save_secs, self.observe_secs = others.save_secs, others.observe_secs
    self._epochs = run.epochs
    self._path = path
    self._flags = flags
    self._options = options

  def time_limit(self, what: str) -> contextlib.AbstractContextManager[Any]:
    """Returns the run's time limit, as in `execution.Hooks.time_limit`."""
    return self._run_hooks.time_limit(what)

  def local_time_limit(
    self, what: str
  ) -> contextlib.AbstractContextManager[Any]:
    """Returns the run's limit, as in `execution.Hooks.local_time_limit`."""
    return self._run_hooks.local_time_limit(what)

  def before_save(self) -> None:
    """Compares replicas as the run does, as in `execution.Hooks`."""
    self._run_hooks.before_save()

  def measure(self) -> metrics.Arrivals | None:
    """Returns the gradients that were dropped, as in `execution.Hooks`."""
    return self._run_hooks.measure()

  def line(self, step: int, values: dict[str, float]) -> str:
    """Returns the log line of an iteration."""
    epoch = self._epochs.epoch_at(step)
    return (
      f'Finished iteration {epoch.step}/{epoch.num_steps} (epoch '
      f'{epoch.number}/{self._options.num_epochs}) '
      f'({values["examples_per_sec"]:.2f} images/sec; '
      f'loss = {values["total_loss"]:.3f}; '
      f'accuracy = {values["accuracy"]:.3f}; '
      f'{values["bits_per_element"]:.2f} bits/element)'
    )

  def epoch_ended(self, record: dict[str, float]) -> None:
    """Rewrites the epoch log."""
    del record  # the log also covers earlier runs in this directory
    (tested,) = self._options.eval_subsets or ('',)
    found = records.read(self._options.train_dir)
    rows = epochs.rows(found, self._epochs.batch_size, tested)
    epochs.write(self._path, self._flags, rows)
