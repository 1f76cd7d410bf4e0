"""Times `fit` with local steps, relative to steps without exchange, in turns.

In one `fit` of each process, turns with and without exchanges alternate. A turn
with exchanges is timed in its steady state: the clock starts after an exchange
that is not timed, and stops after the last one. Bytes are counted up to the end
of the next turn without exchanges: a process may have received everything while
its last bytes still wait to be sent.
"""

import itertools
import os
import statistics
import time
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import pandas as pd

from terngrad.keras import local_steps
from terngrad.local import local_steps as local_steps_lib
from terngrad.local import options
from terngrad.measure.keras import fit
from terngrad.measure.processes import exchanges

_now = time.perf_counter


class LocalStepsSettings(NamedTuple):
  """The settings of a measurement.

  Attributes:
    net: as for `fit.FitSettings`.
    optimizer: a name that `keras.optimizers.get` takes.
    batch_size: examples of a process in a step.
    every: H, number of steps between two exchanges.
    overlap: as for `terngrad.keras.LocalSteps`.
    exchanges: timed exchanges in a turn, which has so many times H steps.
    rounds: number of turns with exchanges; one turn without more.
    interface: network interface whose bytes are counted; '' for all except the
      loopback.
  """

  net: str = 'lenet'
  optimizer: str = 'adam'
  batch_size: int = 64
  every: int = 30
  overlap: str = 'delayed'
  exchanges: int = 3
  rounds: int = 5
  interface: str = ''


def table(codecs: Sequence[str], settings: LocalStepsSettings) -> pd.DataFrame:
  """Times one `fit` for each code; all processes of TF_CONFIG call it.

  Args:
    codecs: codes in the syntax of `--codec`.
    settings: settings of the measurement.

  Returns:
    One row per code: median milliseconds of a step without exchanges
    (`computing`) and of a step with its share of the exchanges; median, least
    and largest ratio of a turn to the mean of the turns before and after it;
    milliseconds per step that training waited; for each exchange the bytes by
    formula, the bytes that this host's interface sent, and their excess; the
    load of the machine over the last minute.
  """
  return pd.DataFrame([_row(codec, settings) for codec in codecs])


def _row(codec: str, settings: LocalStepsSettings) -> dict[str, Any]:
  model = fit.build_model(settings.net)
  loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model.compile(fit.make_optimizer(settings.optimizer), loss)
  turns = TimedTurns(codec, settings)
  model.fit(
    fit.repeat_batch(model, settings.batch_size),
    steps_per_epoch=turns.num_steps,
    shuffle=False,
    verbose=0,
    callbacks=[turns],
  )
  return {
    'codec': codec,
    'overlap': settings.overlap,
    'every': settings.every,
    'processes': turns.processes,
    **turns.results(),
    'load': os.getloadavg()[0],
  }


class TimedTurns(local_steps.LocalStepsCallback):
  """Local steps that make no exchanges in every second turn.

  Attributes:
    num_steps: steps of the `fit` that this callback needs, in one epoch.
    processes: number of processes.
  """

  def __init__(self, codec: str, settings: LocalStepsSettings) -> None:
    """Takes the code and the settings.

    Raises:
      ValueError: a setting is out of its range, or TF_CONFIG is invalid.
    """
    super().__init__(settings.every, codec, overlap=settings.overlap)
    self._settings = settings
    self.processes = len(options.find_cluster().jobs['worker'])
    self._turn = settings.exchanges * settings.every
    # The first exchange, in which helpers compile, precedes all turns.
    turns = 2 * settings.rounds + 1
    self.num_steps = settings.every + turns * self._turn
    self._left, self._exchanges = settings.every, True
    self._is_warm_up, self._clock = True, 0.0
    # Seconds of a step, one value per turn.
    self._computing: list[float] = []
    self._seconds: list[float] = []
    # At the end of each turn without exchanges, see `_count`.
    self._counts: list[tuple[float, float, float]] = []

  def on_train_batch_end(
    self, batch: int, logs: dict[str, Any] | None = None
  ) -> None:
    """Counts a step, and changes to the next turn after the last one."""
    self._left -= 1
    if self._exchanges:
      super().on_train_batch_end(batch, logs)
      if not self._left:
        self._end_exchanges()
    elif not self._left:
      self._end_computing()
      # All steps of the turn are due: exchanges begin.
      super().on_train_batch_end(batch, logs)
      self._clock, self._exchanges = _now(), True
    if not self._left:
      self._left = self._turn

  def _end_computing(self) -> None:
    self._values()  # waits for the last step
    self._computing.append((_now() - self._clock) / self._turn)
    self._counts.append(self._count())

  def _end_exchanges(self) -> None:
    seconds = (_now() - self._clock) / self._turn
    if not self._is_warm_up:
      self._seconds.append(seconds)
    self._steps.get_states()  # waits for the exchange that is on its way
    self._is_warm_up = self._exchanges = False
    self._clock = _now()

  def _count(self) -> tuple[float, float, float]:
    """Returns (seconds waited, bytes by formula, bytes of the interface)."""
    figures = self._steps.figures
    interface = self._settings.interface
    _, count = exchanges.interface_bytes(interface)
    # The loopback counts all processes.
    sent = count / (self.processes if interface == 'lo' else 1)
    return figures[local_steps_lib.WAITING], figures[local_steps_lib.SENT], sent

  def results(self) -> dict[str, float]:
    """Returns the columns of `table`, after `fit`."""
    alone = self._computing
    ratios = [
      seconds / statistics.mean(neighbours)
      for seconds, *neighbours in zip(
        self._seconds, alone[:-1], alone[1:], strict=True
      )
    ]
    # One exchange of each turn is not timed.
    number = self._settings.exchanges + 1
    waiting, formula, sent = (
      statistics.median(
        (after - before) / number for before, after in itertools.pairwise(total)
      )
      for total in zip(*self._counts, strict=True)
    )
    return {
      'ms computing': 1e3 * statistics.median(self._computing),
      'ms a step': 1e3 * statistics.median(self._seconds),
      'ratio': statistics.median(ratios),
      'least ratio': min(ratios),
      'largest ratio': max(ratios),
      'ms waiting': 1e3 * waiting / self._settings.every,
      'formula bytes': formula,
      'interface bytes': sent,
      # A single process sends nothing.
      'excess': sent / formula - 1 if formula else float('nan'),
    }
