"""Runs what a sweep lacks: processes side by side, one row a finished run.

Runs that failed have rows in a table of their own, and are run again.

A run trains and evaluates in a folder of its own, <variant>_seed<seed>, and is
finished when its row stands there. Rows that the table has already count too,
so that several machines can share the work by the table.
"""

import contextlib
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import shlex
import subprocess
import tempfile
from multiprocessing import connection

import pandas as pd

from slim.datasets.records import disk
from terngrad import errors
from terngrad import signals
from terngrad.report import sweep as report
from terngrad.sweep import failures
from terngrad.sweep import warm
from terngrad.training import metrics
from terngrad.training import records

TABLE = 'results.csv'
_RESULT, _LOG = 'result.json', 'log.txt'
# In a result: the rows of `report.CURVES`.
_CURVE = 'curve'
# What variants are compared by.
_ACCURACY = metrics.EVALUATION[0]
_MAIN = 'terngrad.cli.main'
_PACKAGES = ('terngrad', 'tensorflow', 'keras', 'numpy')
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

  def __init__(self, definition, data_dir, work_dir, output):
    """Finds out what is finished.

    Args:
      definition: `definition.Definition`.
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
    self._about = _about()
    self._rows, self._others = {}, []
    self._curves = self._read_curves()
    path = self.table.with_name(report.FAILURES)
    self._failures = _read(path, ('code', 'error'))
    wanted = {(cell.variant, cell.seed): cell for cell in definition.cells}
    for row in _read(self.table):
      cell = wanted.get((row['variant'], row['seed']))
      if cell is None:
        self._others.append(row)
      else:
        self._keep(cell, row, self.table)
    for cell in definition.cells:
      path = self._work_dir / cell.name / _RESULT
      if cell.name not in self._rows and path.exists():
        self._keep(cell, json.loads(path.read_text(encoding='utf-8')), path)
    self.failed = []

  @property
  def missing(self):
    """The cells that are not finished, in their order."""
    return [c for c in self._definition.cells if c.name not in self._rows]

  def run(self, jobs, finished, told):
    """Runs what is missing, and writes the table anew after every run.

    Args:
      jobs: runs side by side.
      finished: called with a line after every run.
      told: `multiprocessing.connection.Connection`; with the first thing that
        comes there all runs are asked to stop, and end with a checkpoint.

    Returns:
      True if all has run, False if it was told to stop. The same sweep then
      continues.
    """
    waiting, under_way = self.missing[::-1], {}
    with tempfile.TemporaryDirectory() as compiled:
      try:
        while waiting or under_way:
          while waiting and len(under_way) < jobs:
            cell = waiting.pop()
            work = self._work(cell)
            words = commands(self._definition, cell, self._data_dir, work)
            run = _Run(cell, words, work, compiled)
            under_way[run.sentinel] = run
          for ready in connection.wait([told, *under_way]):
            if ready is told:
              return False
            run = under_way.pop(ready)
            if run.goes_on():
              under_way[run.sentinel] = run
            else:
              finished(self._finish(run))
      finally:
        _stop(list(under_way.values()))
    return True

  def _work(self, cell):
    return self._work_dir / cell.name

  def _finish(self, run):
    """Keeps the row of a run that has ended; a line on it."""
    cell, work = run.cell, self._work(run.cell)
    if run.code:
      self.failed.append(cell.name)
      failure = failures.row(cell, run.code, run.log(), flags_of(cell))
      self._failures.append(failure | {'ended': _now()} | self._about)
      self.write()
      return f'{cell.name}: failed with {run.code}; see {work / _LOG}'
    row = _row(cell, work, self._definition.scoring) | self._about
    disk.write_text(work / _RESULT, json.dumps(row))
    self._take(cell, row)
    self.write()
    return (
      f'{cell.name}: {100 * row["accuracy"]:.2f} %, '
      f'{row["bits_per_element"]:.3g} bits an element, {row["seconds"]:.0f} s'
    )

  def write(self):
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

  def _keep(self, cell, row, path):
    """Takes a row that was there before."""
    if row.get('flags') != flags_of(cell):
      raise errors.ConfigError(
        f'{path}: expected {cell.name} to have run with {flags_of(cell)}, '
        f'received {row.get("flags")}. Give another --work_dir and --output, '
        'or remove what is there.'
      )
    self._take(cell, row)

  def _take(self, cell, row):
    """Takes the row of a finished run in, and its curve if it has one."""
    if curve := row.pop(_CURVE, None):
      self._curves[cell.variant, cell.seed] = curve
    self._rows[cell.name] = row

  def _read_curves(self):
    """{(variant, seed): the points of its curve} of the file, if any."""
    found = {}
    path = self.table.with_name(report.CURVES)
    for point in _read(path, ('step', 'accuracy')):
      found.setdefault((point['variant'], point['seed']), []).append(point)
    return found


def commands(definition, cell, data_dir, work):
  """The words of `terngrad` that train a cell, and those that score it.

  Args:
    definition: `definition.Definition`.
    cell: a `Cell` of it.
    data_dir: folder of the data set.
    work: `pathlib.Path` of the run's folder.

  Returns:
    A list of words of the training, then one of each score.
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
        f'--eval_dir={work / _with("eval", name)}',
        '--run_once',
      ]
      for name, words in definition.scoring.items()
    ),
  ]


def _with(what, name):
  """What a score is called: as the first one, or with a name of its own."""
  return f'{what}_{name}' if name else what


class _Run:
  """A cell's commands, one after the other in processes of their own.

  Attributes:
    cell: `definition.Cell`.
    code: the exit code of the last command that has ended.
  """

  def __init__(self, cell, commands, folder, compiled):
    self.cell, self.code = cell, None
    self._commands = commands[::-1]
    self._log = folder / _LOG
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

  @property
  def sentinel(self):
    """What can be waited for."""
    return self._process.sentinel

  def goes_on(self):
    """Takes the end of a command in; whether another was started."""
    self._process.join()
    self.code = self._process.exitcode
    self._process.close()
    if self.code or not self._commands:
      return False
    self._start()
    return True

  def log(self):
    """What the last command has written, as a str."""
    return self._log.read_bytes()[self._begun :].decode(errors='replace')

  def ask(self):
    """Asks it to stop."""
    self._process.terminate()

  def end(self, seconds):
    """Waits so long for its end, then ends it."""
    self._process.join(seconds)
    self._process.kill()
    self._process.join()

  def _start(self):
    with open(self._log, 'a', encoding='utf-8') as log:
      self._begun = log.tell()
      self._process = warm.start(
        _MAIN, self._commands.pop(), log, log, environment=self._environment
      )


def _stop(runs):
  """Ends what runs, all together."""
  for run in runs:
    run.ask()
  for run in runs:
    run.end(_GRACE)


def _launched(cell):
  """The words before those of the trainer."""
  return ['launch', *cell.launch, '--'] if cell.launch else []


def flags_of(cell):
  """What a row says of a cell's flags, as a shell reads them."""
  return shlex.join([*_launched(cell), *cell.flags, f'--seed={cell.seed}'])


def _row(cell, work, scores):
  """The figures of a run that has ended."""
  found = records.read(work / 'train')
  last = [r for r in found if 'total_loss' in r][-1]
  accuracy = {
    _with('accuracy', name): _score(work / _with('eval', name))
    for name in scores
  }
  return {
    'variant': cell.variant,
    'seed': cell.seed,
    'steps': last['step'],
    **accuracy,
    'bits_per_element': last['bits_per_element'],
    'loss': last['total_loss_smoothed'],
    'seconds': last['seconds'],
    'ended': _now(),
    'flags': flags_of(cell),
    _CURVE: _curve(cell, found),
  }


def _now():
  """The time as a row says it."""
  return datetime.datetime.now().isoformat(timespec='seconds')


def _curve(cell, trained):
  """The points of a run: a row for each epoch, of the first subset scored."""
  subsets = metrics.epoch_subsets(trained, _ACCURACY)
  if not subsets:
    return []
  name = metrics.epoch_name(subsets[0], _ACCURACY)
  return [
    {
      'variant': cell.variant,
      'seed': cell.seed,
      'step': record['step'],
      'accuracy': record[name],
    }
    for record in trained
    if record.get(name) is not None
  ]


def _score(folder):
  """The accuracy that an evaluation ended with, as a share."""
  return records.read(folder)[-1][_ACCURACY.name]


def _read(path, columns=()):
  """The rows of a table that may not be there: of runs, with `columns` too."""
  if not path.exists():
    return []
  try:
    rows = report.exact(path, {'seed', *columns}).to_dict('records')
    return [row | {'variant': str(row['variant'])} for row in rows]
  except (OSError, ValueError, KeyError) as error:
    raise errors.ConfigError(
      f'{path}: expected a table of runs, received "{error}". Remove it; what '
      'is finished in --work_dir is written anew.'
    ) from error


def _about():
  """What a row says of where it was made."""
  commit = subprocess.run(
    ['git', 'describe', '--always', '--dirty', '--exclude=*'],
    cwd=pathlib.Path(__file__).parent,
    capture_output=True,
    text=True,
    check=False,
  )
  versions = [f'python {platform.python_version()}']
  for name in _PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      versions.append(f'{name} {importlib.metadata.version(name)}')
  return {
    'commit': commit.stdout.strip() or 'unknown',
    'versions': ', '.join(versions),
    'machine': f'{_processor()}, {os.cpu_count()} cores',
  }


def _processor():
  """The processor's name, or its architecture."""
  with contextlib.suppress(OSError):
    for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines():
      if line.startswith('model name'):
        return line.partition(':')[2].strip()
  return platform.machine()
