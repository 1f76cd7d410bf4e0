"""What Caffe2's trainer says of a run, and the log that it keeps of epochs."""

import contextlib
import pathlib
from collections.abc import Mapping
from typing import Any

from terngrad.config import run as run_options
from terngrad.report import epochs
from terngrad.training import execution
from terngrad.training import records
from terngrad.training import run as run_lib


class EpochLog(execution.Hooks):
  """Lines of iterations, and a row of a CSV file after each epoch."""

  def __init__(
    self,
    path: pathlib.Path,
    flags: Mapping[str, Any],
    options: run_options.Run,
    run: run_lib.Run,
  ) -> None:
    """Writes nothing yet.

    Args:
      path: of the log.
      flags: of the command line, which the log begins with.
      options: of the run.
      run: whose hooks these replace.
    """
    self._before = run.hooks
    self._epochs = run.epochs
    self._path = path
    self._flags = flags
    self._options = options

  def time_limit(self, what: str) -> contextlib.AbstractContextManager[Any]:
    """That of the run; see `execution.Hooks.time_limit`."""
    return self._before.time_limit(what)

  def line(self, step: int, values: dict[str, float]) -> str:
    """The line of an iteration."""
    epoch = self._epochs.of(step)
    return (
      f'Finished iteration {epoch.step}/{epoch.num_steps} (epoch '
      f'{epoch.number}/{self._options.num_epochs}) '
      f'({values["examples_per_sec"]:.2f} images/sec; '
      f'loss = {values["total_loss"]:.3f}; '
      f'accuracy = {values["accuracy"]:.3f}; '
      f'{values["bits_per_element"]:.2f} bits/element)'
    )

  def epoch_ended(self, record: dict[str, float]) -> None:
    """Writes the log."""
    del record  # the log holds what earlier runs of the folder left, too
    (tested,) = self._options.eval_subsets or ('',)
    found = records.read(self._options.train_dir)
    rows = epochs.rows(found, self._epochs.batch_size, tested)
    epochs.write(self._path, self._flags, rows)
