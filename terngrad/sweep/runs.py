"""Runs the missing runs of a sweep in parallel processes.

A run trains and evaluates in its directory, <variant>_seed<seed>, and is
finished once its row is written there. Rows already in the table count as
finished too. Several sweeps, on several machines, may write to one table at the
same time: each adds its rows to those of the others.

The flags of a run and its machine are written when it begins, and are in its
row. So a run that was stopped is not continued with other flags, and no table
mixes runs of two settings. The row of a run that another machine, version or
commit continued names both.

Failed runs have rows in a separate table and are repeated. If a trainer refuses
its flags or its data before the first step, no other run is started: all would
probably be refused for the same reason.
"""

import json
import os
import pathlib
import shlex
import tempfile
from collections.abc import Callable
from collections.abc import Sequence
from multiprocessing import connection
from multiprocessing import context
from typing import Any

import pandas as pd

from slim.datasets.records import disk
from terngrad import errors
from terngrad import signal_guard
from terngrad import signals
from terngrad.checkpoint import listing
from terngrad.report import sweep as report
from terngrad.report.statistics import machines
from terngrad.sweep import definition as definitions
from terngrad.sweep import failures
from terngrad.sweep import results
from terngrad.sweep import warm
from terngrad.training import records

TABLE = 'results.csv'
_RESULT, _LOG = 'result.json', 'log.txt'
# The flags, evaluation and provenance of a run that has begun.
_BEGUN = 'flags.json'
# The columns of a row that say how a run was made.
_FLAGS, _EVALUATION = 'flags', 'evaluation'
_MAIN = 'terngrad.cli.main'
_REFUSED = 2  # exit code of `terngrad` for wrong flags or data


def _read(path: pathlib.Path) -> dict[str, Any]:
  """Reads a file that this module wrote."""
  try:
    found = json.loads(path.read_text(encoding='utf-8'))
    if isinstance(found, dict):
      return found
    problem = f'a {type(found).__name__}'
  except (OSError, RecursionError, ValueError) as error:
    problem = str(error)
  raise errors.ConfigError(
    f'{path}: expected a JSON object that a sweep wrote, received {problem}. '
    'Remove the folder, so that its run begins again.'
  )


class Sweep:
  """The finished and missing runs of a definition.

  Attributes:
    table: path of the table of finished runs. Beside it are `report.CURVES`
      with the accuracy after each epoch, if training computed it, and
      `report.FAILURES` with the failed runs.
    failed: names of the runs that failed in this call; see their logs.
    refused: name and error of the run that stopped this call, because its
      trainer refused the flags or the data before the first step; or ().
  """

  def __init__(
    self,
    definition: definitions.Definition,
    data_dir: str,
    work_dir: str,
    output: str | os.PathLike[str],
  ) -> None:
    """Reads the finished runs.

    Args:
      definition: the sweep.
      data_dir: directory of the data set.
      work_dir: directory for the runs; created if missing.
      output: directory of the table.

    Raises:
      errors.ConfigError: a run that has begun used other flags, or another
        evaluation.
    """
    self._definition = definition
    self._data_dir, self._work_dir = data_dir, pathlib.Path(work_dir)
    self.table = pathlib.Path(output) / TABLE
    # Before writing the table, which makes the git working tree dirty.
    self._provenance = results.provenance()
    self._rows: dict[str, results.Row] = {}
    # Of runs that this sweep ended. The tables hold those of other runs.
    self._curves: dict[tuple[str, int], list[results.Row]] = {}
    # Of finished runs, in case that the table of curves lost them.
    self._old_curves: dict[tuple[str, int], list[results.Row]] = {}
    self._failures: list[results.Row] = []
    self._read_table()
    for cell in definition.cells:
      self._read_folder(cell)
    self.failed: list[str] = []
    self.refused: tuple[str, ...] = ()

  @property
  def missing(self) -> list[definitions.Cell]:
    """The runs that are not finished, in the definition's order."""
    return [c for c in self._definition.cells if c.name not in self._rows]

  @errors.explain_write_errors('The sweep')
  def run(
    self,
    jobs: int,
    finished: Callable[[str], object],
    stop_request: connection.Connection,
  ) -> bool:
    """Runs the missing runs, and adds each one to the tables.

    Args:
      jobs: number of parallel runs.
      finished: called with a log line after every run.
      stop_request: a message on this connection stops all runs; each writes a
        checkpoint first.

    Returns:
      True if all runs ended or one was refused, False if they were stopped.
      Calling it again on the same sweep continues them.

    Raises:
      errors.ConfigError: see `write`.
      errors.TrainingError: a file cannot be written; all runs were stopped.
    """
    waiting = self.missing[::-1]
    running: dict[int, _Run] = {}
    with tempfile.TemporaryDirectory() as cache_dir:
      try:
        while waiting or running:
          while waiting and len(running) < jobs:
            cell = waiting.pop()
            work = self._work_dir / cell.name
            words = commands(self._definition, cell, self._data_dir, work)
            self._begin(cell, work)
            run = _Run(cell, words, work, cache_dir)
            running[run.process.sentinel] = run
          for ready in connection.wait([stop_request, *running]):
            # `wait` returns process sentinels (ints) or `stop_request`.
            if not isinstance(ready, int):
              return False
            run = running.pop(ready)
            if run.start_next():
              running[run.process.sentinel] = run
            else:
              finished(self._finish(run))
              if self.refused:
                return True
      finally:
        _stop([run.process for run in running.values()])
    return True

  def _begin(self, cell: definitions.Cell, work: pathlib.Path) -> None:
    """Writes how a run is made, and how it was made before it was stopped."""
    begun, provenance = work / _BEGUN, self._provenance
    if listing.prefixes(work / 'train'):
      before = _read(begun) if begun.exists() else {}
      provenance = machines.add_start(before, provenance)
    disk.make_folder(work)
    disk.write_text(begun, json.dumps(self._settings(cell) | provenance))

  def _finish(self, run: '_Run') -> str:
    """Records a run that has ended; returns a log line about it."""
    cell, work = run.cell, run.folder
    begun = _read(work / _BEGUN)
    if run.is_refused:
      # The flags or the data are wrong, so this says nothing of the variant.
      self.failed.append(cell.name)
      self.refused = cell.name, failures.cause(run.log())
    elif run.code:
      self.failed.append(cell.name)
      failure = failures.row(cell, run.code, run.log(), flags_of(cell))
      failure |= {_EVALUATION: self._definition.evaluation}
      self._failures.append(failure | {'ended': results.now()} | begun)
      self.write()
    if run.code:
      return f'{cell.name}: failed with exit code {run.code}; see {work / _LOG}'
    scores = self._definition.scoring
    row = results.row(cell, work, scores, flags_of(cell))
    row |= begun
    disk.write_text(work / _RESULT, json.dumps(row))
    self._add(cell, row)
    self.write()
    return (
      f'{cell.name}: {100 * row["accuracy"]:.2f} %, '
      f'{row["bits_per_element"]:.3g} bits/element, {row["seconds"]:.0f} s'
    )

  @errors.explain_write_errors('The sweep')
  def write(self) -> None:
    """Adds the runs to the tables: runs of this definition first.

    Raises:
      errors.ConfigError: another sweep added a run with other flags.
      errors.TrainingError: the tables cannot be written.
    """
    with results.lock(self.table):
      others = self._read_table()
      rows = [
        self._rows[cell.name]
        for cell in self._definition.cells
        if cell.name in self._rows
      ]
      rows += others
      curves = self._old_curves | self._read_curves() | self._curves
      points = [
        point
        for row in rows
        for point in curves.get((row['variant'], row['seed']), ())
      ]
      path = self.table.with_name(report.FAILURES)
      failed = results.read(path, ('code', 'error')) + self._failures
      # A run counts as finished once it has a row, so its curve is first.
      for name, written in (
        (report.CURVES, points),
        (TABLE, rows),
        (report.FAILURES, failed),
      ):
        if written:
          text = pd.DataFrame(written).to_csv(index=False)
          disk.write_text(self.table.with_name(name), text)
    self._failures.clear()

  def _read_table(self) -> list[results.Row]:
    """Adds the finished runs of this definition; returns the other rows."""
    cells = self._definition.cells
    wanted = {(cell.variant, cell.seed): cell for cell in cells}
    others = []
    rows = results.read(self.table)
    report.check_once(self.table, [(r['variant'], r['seed']) for r in rows])
    for row in rows:
      cell = wanted.get((row['variant'], row['seed']))
      if cell is None:
        others.append(row)
      else:
        self._restore(cell, row, self.table)
    return others

  def _read_folder(self, cell: definitions.Cell) -> None:
    """Adds a run that finished in its folder; checks one that has begun."""
    folder = self._work_dir / cell.name
    path = folder / _RESULT
    if path.exists():
      row = _read(path)
      results.check(path, row, cell)
      curve = row.pop(results.CURVE, None)
      if cell.name not in self._rows:
        self._restore(cell, row, path)
      if curve and not self._difference(cell, row):
        self._old_curves[cell.variant, cell.seed] = curve
    elif cell.name not in self._rows and (folder / _BEGUN).exists():
      path = folder / _BEGUN
      self._check(cell, _read(path), path)

  def _settings(self, cell: definitions.Cell) -> dict[str, str]:
    """Returns how a run of this definition is made."""
    return {
      _FLAGS: flags_of(cell),
      _EVALUATION: self._definition.evaluation,
    }

  def _difference(self, cell: definitions.Cell, row: results.Row) -> str:
    """Returns in which column a row differs from the definition, or ''."""
    wanted = self._settings(cell)
    if row.get(_FLAGS) != wanted[_FLAGS]:
      return _FLAGS
    # Rows of version 0.2 have none.
    evaluation = row.get(_EVALUATION) or wanted[_EVALUATION]
    return '' if evaluation == wanted[_EVALUATION] else _EVALUATION

  def _check(
    self, cell: definitions.Cell, row: results.Row, path: pathlib.Path
  ) -> None:
    """Raises ConfigError if a run was made otherwise."""
    if name := self._difference(cell, row):
      raise errors.ConfigError(
        f'{path}: expected {cell.name} to have run with the {name} '
        f'"{self._settings(cell)[name]}", received a run with '
        f'"{row.get(name)}". Use another --work_dir and --output, or remove '
        'that run from both.'
      )

  def _read_curves(self) -> dict[tuple[str, int], list[results.Row]]:
    """Returns the rows of the table of curves, by variant and seed."""
    curves: dict[tuple[str, int], list[results.Row]] = {}
    path = self.table.with_name(report.CURVES)
    for point in results.read(path, ('step', 'accuracy')):
      curves.setdefault((point['variant'], point['seed']), []).append(point)
    return curves

  def _restore(
    self, cell: definitions.Cell, row: results.Row, path: pathlib.Path
  ) -> None:
    """Adds a row, unless there is one; raises if its run was made otherwise."""
    self._check(cell, row, path)
    if cell.name not in self._rows:
      self._add(cell, row)

  def _add(self, cell: definitions.Cell, row: results.Row) -> None:
    """Adds the row of a finished run, and its curve if it has one."""
    if curve := row.pop(results.CURVE, None):
      self._curves[cell.variant, cell.seed] = curve
    self._rows[cell.name] = row


def commands(
  definition: definitions.Definition,
  cell: definitions.Cell,
  data_dir: str,
  work: pathlib.Path,
) -> list[list[str]]:
  """Returns the arguments of `terngrad` that train and score a run.

  Returns:
    Arguments of the training, then of each score.
  """
  return [
    [
      *_launch_arguments(cell),
      'train',
      definition.program,
      *cell.flags,
      f'--seed={cell.seed}',
      f'--data_dir={data_dir}',
      f'--train_dir={work / "train"}',
    ],
    *(
      [
        'eval',
        definition.program,
        *words,
        f'--data_dir={data_dir}',
        f'--checkpoint_dir={work / "train"}',
        f'--eval_dir={work / results.score_name("eval", name)}',
        '--run_once',
      ]
      for name, words in definition.scoring.items()
    ),
  ]


class _Run:
  """Runs the commands of one run in sequence, each in a new process.

  Attributes:
    cell: the run.
    folder: directory of the run.
    code: exit code of the last command that has ended.
    process: process of the command started last.
  """

  def __init__(
    self,
    cell: definitions.Cell,
    commands: Sequence[Sequence[str]],
    folder: pathlib.Path,
    cache_dir: str,
  ) -> None:
    self.cell, self.folder = cell, folder
    self.code: int | None = None
    self._commands = list(commands[::-1])
    self._first = len(self._commands) - 1
    self._written = self._metrics_size()
    self._environment = (
      os.environ
      | signals.environment()
      | {
        # All runs share one cache of XLA-compiled functions.
        'TF_XLA_FLAGS': f'{os.environ.get("TF_XLA_FLAGS", "")} '
        f'--tf_xla_persistent_cache_directory={cache_dir}'
      }
    )
    self._start()

  def start_next(self) -> bool:
    """Handles the end of a command; returns whether the next one started."""
    self.process.join()
    self.code = self.process.exitcode
    self.process.close()
    if self.code or not self._commands:
      return False
    self._start()
    return True

  @property
  def is_refused(self) -> bool:
    """Whether the trainer ended with a usage error, without a step."""
    is_trainer = len(self._commands) == self._first
    is_usage = self.code == _REFUSED and is_trainer
    return is_usage and self._metrics_size() == self._written

  def _metrics_size(self) -> int:
    """Returns how many bytes the trainer wrote about its steps in all calls."""
    path = self.folder / 'train' / records.FILE_NAME
    return path.stat().st_size if path.exists() else 0

  def log(self) -> str:
    """Returns the output of the last command."""
    written = (self.folder / _LOG).read_bytes()
    return written[self._log_start :].decode(errors='replace')

  def _start(self) -> None:
    with open(self.folder / _LOG, 'a', encoding='utf-8') as log:
      self._log_start = log.tell()
      self.process = warm.start(
        _MAIN, self._commands.pop(), log, log, environment=self._environment
      )


def _stop(processes: Sequence[context.ForkServerProcess]) -> None:
  """Stops all processes at the same time."""
  for each in processes:
    each.terminate()
  for each in processes:
    each.join(signal_guard.STOP_SECONDS)
    each.kill()
    each.join()


def _launch_arguments(cell: definitions.Cell) -> list[str]:
  """Returns the arguments that precede the trainer's."""
  return ['launch', *cell.launch, '--'] if cell.launch else []


def flags_of(cell: definitions.Cell) -> str:
  """Formats a run's flags for its row, with shell quoting."""
  return shlex.join(
    [*_launch_arguments(cell), *cell.flags, f'--seed={cell.seed}']
  )
