"""Runs what a sweep lacks: processes side by side, one row a finished run.

Runs that failed have rows in a table of their own, and are run again.

A run trains and evaluates in a folder of its own, <variant>_seed<seed>, and is
finished when its row stands there. Rows that the table has already count too,
so that several machines can share the work by the table.
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

import pandas as pd

from slim.datasets.records import disk
from terngrad import errors
from terngrad import signals
from terngrad.report import sweep as report
from terngrad.sweep import definition as definitions
from terngrad.sweep import failures
from terngrad.sweep import results
from terngrad.sweep import warm

TABLE = 'results.csv'
_RESULT, _LOG = 'result.json', 'log.txt'
_MAIN = 'terngrad.cli.main'
# Seconds for a run to end once it was asked to; it writes a checkpoint.
_GRACE = 120


class Sweep:
  """The runs of a definition, finished and not.

  Attributes:
    table: path of the table of finished runs; accuracies after each of their
      epochs are beside it, in `report.CURVES`, where training scored them, and
      runs that failed in `report.FAILURES`.
    failed: names of the runs that failed this time; their logs say why.
  """

  def __init__(
    self,
    definition: definitions.Definition,
    data_dir: str,
    work_dir: str,
    output: str | os.PathLike[str],
  ) -> None:
    """Finds out what is finished.

    Args:
      definition: what there is to run.
      data_dir: folder of the data set.
      work_dir: folder for the runs; made where it is not.
      output: folder of the table.

    Raises:
      errors.ConfigError: what is finished was run with other flags.
    """
    self._definition = definition
    self._data_dir, self._work_dir = data_dir, pathlib.Path(work_dir)
    self.table = pathlib.Path(output) / TABLE
    # Before the table changes the folder.
    self._about = results.about()
    self._rows: dict[str, results.Row] = {}
    self._others: list[results.Row] = []
    self._curves: dict[tuple[str, int], list[results.Row]] = {}
    path = self.table.with_name(report.CURVES)
    for point in results.read(path, ('step', 'accuracy')):
      key = point['variant'], point['seed']
      self._curves.setdefault(key, []).append(point)
    path = self.table.with_name(report.FAILURES)
    self._failures = results.read(path, ('code', 'error'))
    wanted = {(cell.variant, cell.seed): cell for cell in definition.cells}
    for row in results.read(self.table):
      cell = wanted.get((row['variant'], row['seed']))
      if cell is None:
        self._others.append(row)
      else:
        self._keep(cell, row, self.table)
    for cell in definition.cells:
      path = self._work_dir / cell.name / _RESULT
      if cell.name not in self._rows and path.exists():
        self._keep(cell, json.loads(path.read_text(encoding='utf-8')), path)
    self.failed: list[str] = []

  @property
  def missing(self) -> list[definitions.Cell]:
    """The cells that are not finished, in their order."""
    return [c for c in self._definition.cells if c.name not in self._rows]

  def run(
    self,
    jobs: int,
    finished: Callable[[str], object],
    told: connection.Connection,
  ) -> bool:
    """Runs what is missing, and writes the table anew after every run.

    Args:
      jobs: runs side by side.
      finished: called with a line after every run.
      told: with the first thing that comes there all runs are asked to stop,
        and end with a checkpoint.

    Returns:
      True if all has run, False if it was told to stop. The same sweep then
      continues.
    """
    waiting = self.missing[::-1]
    under_way: dict[int, _Run] = {}
    with tempfile.TemporaryDirectory() as compiled:
      try:
        while waiting or under_way:
          while waiting and len(under_way) < jobs:
            cell = waiting.pop()
            work = self._work_dir / cell.name
            words = commands(self._definition, cell, self._data_dir, work)
            run = _Run(cell, words, work, compiled)
            under_way[run.process.sentinel] = run
          for ready in connection.wait([told, *under_way]):
            # All but `told` are numbers of processes.
            if not isinstance(ready, int):
              return False
            run = under_way.pop(ready)
            if run.goes_on():
              under_way[run.process.sentinel] = run
            else:
              finished(self._finish(run))
      finally:
        _stop([run.process for run in under_way.values()])
    return True

  def _finish(self, run: '_Run') -> str:
    """Keeps the row of a run that has ended; a line on it."""
    cell, work = run.cell, run.folder
    if run.code:
      self.failed.append(cell.name)
      failure = failures.row(cell, run.code, run.log(), flags_of(cell))
      self._failures.append(failure | {'ended': results.now()} | self._about)
      self.write()
      return f'{cell.name}: failed with {run.code}; see {work / _LOG}'
    scores = self._definition.scoring
    row = results.row(cell, work, scores, flags_of(cell)) | self._about
    disk.write_text(work / _RESULT, json.dumps(row))
    self._take(cell, row)
    self.write()
    return (
      f'{cell.name}: {100 * row["accuracy"]:.2f} %, '
      f'{row["bits_per_element"]:.3g} bits an element, {row["seconds"]:.0f} s'
    )

  def write(self) -> None:
    """Writes the tables: finished runs in their order, then those of others."""
    rows = [
      self._rows[cell.name]
      for cell in self._definition.cells
      if cell.name in self._rows
    ]
    rows += self._others
    points = [
      point
      for row in rows
      for point in self._curves.get((row['variant'], row['seed']), ())
    ]
    for name, written in (
      (TABLE, rows),
      (report.CURVES, points),
      (report.FAILURES, self._failures),
    ):
      if written:
        text = pd.DataFrame(written).to_csv(index=False)
        disk.write_text(self.table.with_name(name), text)

  def _keep(
    self, cell: definitions.Cell, row: results.Row, path: pathlib.Path
  ) -> None:
    """Takes a row that was there before."""
    if row.get('flags') != flags_of(cell):
      raise errors.ConfigError(
        f'{path}: expected {cell.name} to have run with {flags_of(cell)}, '
        f'received {row.get("flags")}. Give another --work_dir and --output, '
        'or remove what is there.'
      )
    self._take(cell, row)

  def _take(self, cell: definitions.Cell, row: results.Row) -> None:
    """Takes the row of a finished run in, and its curve if it has one."""
    if curve := row.pop(results.CURVE, None):
      self._curves[cell.variant, cell.seed] = curve
    self._rows[cell.name] = row


def commands(
  definition: definitions.Definition,
  cell: definitions.Cell,
  data_dir: str,
  work: pathlib.Path,
) -> list[list[str]]:
  """The words of `terngrad` that train a cell, and those that score it.

  Args:
    definition: the sweep.
    cell: of it.
    data_dir: folder of the data set.
    work: the run's folder.

  Returns:
    Words of the training, then those of each score.
  """
  return [
    [
      *_launched(cell),
      'train',
      definition.program,
      *definition.words(cell.flags),
      f'--seed={cell.seed}',
      f'--data_dir={data_dir}',
      f'--train_dir={work / "train"}',
    ],
    *(
      [
        'eval',
        definition.program,
        *definition.words(words),
        f'--data_dir={data_dir}',
        f'--checkpoint_dir={work / "train"}',
        f'--eval_dir={work / results.named("eval", name)}',
        '--run_once',
      ]
      for name, words in definition.scoring.items()
    ),
  ]


class _Run:
  """A cell's commands, one after the other in processes of their own.

  Attributes:
    cell: what runs.
    folder: of it.
    code: the exit code of the last command that has ended.
    process: of the command that was started last.
  """

  def __init__(
    self,
    cell: definitions.Cell,
    commands: Sequence[Sequence[str]],
    folder: pathlib.Path,
    compiled: str,
  ) -> None:
    self.cell, self.folder = cell, folder
    self.code: int | None = None
    self._commands = list(commands[::-1])
    self._environment = (
      os.environ
      | signals.environment()
      | {
        # What one run has compiled all others load.
        'TF_XLA_FLAGS': f'{os.environ.get("TF_XLA_FLAGS", "")} '
        f'--tf_xla_persistent_cache_directory={compiled}'
      }
    )
    disk.make_folder(folder)
    self._start()

  def goes_on(self) -> bool:
    """Takes the end of a command in; whether another was started."""
    self.process.join()
    self.code = self.process.exitcode
    self.process.close()
    if self.code or not self._commands:
      return False
    self._start()
    return True

  def log(self) -> str:
    """What the last command has written."""
    written = (self.folder / _LOG).read_bytes()
    return written[self._begun :].decode(errors='replace')

  def _start(self) -> None:
    with open(self.folder / _LOG, 'a', encoding='utf-8') as log:
      self._begun = log.tell()
      self.process = warm.start(
        _MAIN, self._commands.pop(), log, log, environment=self._environment
      )


def _stop(processes: Sequence[context.ForkServerProcess]) -> None:
  """Ends what runs, all together."""
  for each in processes:
    each.terminate()
  for each in processes:
    each.join(_GRACE)
    each.kill()
    each.join()


def _launched(cell: definitions.Cell) -> list[str]:
  """The words before those of the trainer."""
  return ['launch', *cell.launch, '--'] if cell.launch else []


def flags_of(cell: definitions.Cell) -> str:
  """What a row says of a cell's flags, as a shell reads them."""
  return shlex.join([*_launched(cell), *cell.flags, f'--seed={cell.seed}'])
