"""Table rows of finished runs, and of the machine and versions they used."""

import contextlib
import datetime
import fcntl
import importlib.metadata
import os
import pathlib
import platform
import subprocess
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import IO
from typing import Any

import tensorflow as tf

from terngrad import errors
from terngrad.cluster import devices
from terngrad.machine import onednn
from terngrad.machine import processor
from terngrad.report import sweep as report
from terngrad.sweep import definition
from terngrad.training import metrics
from terngrad.training import records

# Key in a row before it is written: the run's rows of `report.CURVES`.
CURVE = 'curve'
# The metric by which variants are compared.
_ACCURACY, _, _LOSS = metrics.EVALUATION
_BITS_PER_BYTE, _ = metrics.TEXT
# Scores after an epoch, by the column of `report.CURVES`.
_CURVE_SCORES = {
  'accuracy': _ACCURACY,
  'loss': _LOSS,
  _BITS_PER_BYTE.name: _BITS_PER_BYTE,
}
# Scores of a finished run, by the column of the table.
_ROW_SCORES = {'accuracy': _ACCURACY, _BITS_PER_BYTE.name: _BITS_PER_BYTE}
# Variables by which libraries leave out instructions of the processor.
_LIMITS = (
  'ONEDNN_MAX_CPU_ISA',
  'ONEDNN_DEFAULT_FPMATH_MODE',
  'XLA_FLAGS',
  'TERNGRAD_NATIVE',
)
_PACKAGES = ('terngrad', 'tensorflow', 'keras', 'numpy')

# A row of a table, by column.
Row = dict[str, Any]


def score_name(prefix: str, name: str) -> str:
  """Appends a score's name to a prefix; the main score's name is ''."""
  return f'{prefix}_{name}' if name else prefix


def row(
  cell: definition.Cell, work: pathlib.Path, scores: Iterable[str], flags: str
) -> Row:
  """Returns the table row of a finished run.

  Args:
    cell: the run.
    work: directory of the run.
    scores: names of the scores; '' is the score that variants are compared by.
    flags: flags of the run.
  """
  found = records.read(work / 'train')
  last = [r for r in found if 'total_loss' in r][-1]
  scored = {
    name: records.read(work / score_name('eval', name))[-1] for name in scores
  }
  values = {
    score_name(column, name): record[kind.name]
    for column, kind in _ROW_SCORES.items()
    for name, record in scored.items()
    if kind.name in record
  }
  return {
    'variant': cell.variant,
    'seed': cell.seed,
    'steps': last['step'],
    **values,
    'bits_per_element': last['bits_per_element'],
    'loss': last['total_loss_smoothed'],
    'seconds': last['seconds'],
    'ended': now(),
    'flags': flags,
    CURVE: _curve(cell, found),
  }


def check(path: pathlib.Path, found: Row, cell: definition.Cell) -> None:
  """Checks a row that the folder of a run holds.

  Raises:
    errors.ConfigError: it is of another run, or damaged.
  """
  curve = found.get(CURVE) or []
  expected = cell.variant, cell.seed
  received = found.get('variant'), found.get('seed')
  missing = sorted(report.COLUMNS - found.keys())
  is_curve = isinstance(curve, list) and all(isinstance(p, dict) for p in curve)
  if received != expected or missing or not is_curve:
    problem = f'one without {", ".join(missing)}' if missing else f'{received}'
    raise errors.ConfigError(
      f'{path}: expected the row of variant and seed {expected}, received '
      f'{problem if is_curve else "a damaged curve"}. Remove the folder, so '
      'that its run begins again.'
    )


def now() -> str:
  """Returns the time in the format of a row."""
  return datetime.datetime.now().isoformat(timespec='seconds')


def _curve(
  cell: definition.Cell, trained: Sequence[Mapping[str, Any]]
) -> list[Row]:
  """Returns one row per epoch, with the scores on the first scored subset."""
  subset = next(iter(metrics.epoch_subsets(trained, _ACCURACY)), '')
  names = {
    column: metrics.epoch_name(subset, kind)
    for column, kind in _CURVE_SCORES.items()
  }
  return [
    {
      'variant': cell.variant,
      'seed': cell.seed,
      'step': record['step'],
      # None: not finite.
      **{column: record[n] for column, n in names.items() if n in record},
    }
    for record in trained
    if record.get(names['accuracy']) is not None
  ]


def read(path: pathlib.Path, columns: Collection[str] = ()) -> list[Row]:
  """Reads a table of runs; returns [] if the file does not exist."""
  if not path.exists():
    return []
  try:
    rows = report.read_exactly(path, {'seed', *columns}).to_dict('records')
    return [row | {'variant': str(row['variant'])} for row in rows]
  except (OSError, ValueError, KeyError) as error:
    raise errors.ConfigError(
      f'{path}: expected a table of runs, received "{error}". Remove the file; '
      'the runs that finished in --work_dir are added again.'
    ) from error


@contextlib.contextmanager
def lock(path: pathlib.Path) -> Iterator[None]:
  """Waits until no other sweep locks a table, and locks it for the block.

  File systems without locks lock nothing.

  Args:
    path: path of the table, which may not exist yet.

  Raises:
    OSError: the folder cannot be written.
  """
  # A hidden file, because the table itself is replaced in the block. It is open
  # for writing, because locks of network file systems need that.
  name = path.with_name(f'.{path.name}.lock')
  while True:
    with open(name, 'ab') as file:
      with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX)
      if _is_at(name, file):
        try:
          yield
        finally:
          name.unlink(missing_ok=True)
        return


def _is_at(path: pathlib.Path, file: IO[bytes]) -> bool:
  """Returns False if the lock's last holder removed the file, a void lock."""
  try:
    return os.path.samefile(path, file.fileno())
  except FileNotFoundError:
    return False


def _commit() -> str:
  """Returns the commit of this package; '' without git or a repository."""
  try:
    described = subprocess.run(
      ['git', 'describe', '--always', '--dirty', '--exclude=*'],
      cwd=pathlib.Path(__file__).parent,
      capture_output=True,
      text=True,
      check=False,
    )
  except OSError:
    return ''
  return described.stdout.strip()


def provenance() -> dict[str, str]:
  """Returns the columns for commit, package versions, machine and TensorFlow.

  Equal runs repeat to the last digit only where all of them are equal, except
  for the number of cores.
  """
  versions = [f'python {platform.python_version()}']
  for name in _PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      versions.append(f'{name} {importlib.metadata.version(name)}')
  return {
    'commit': _commit() or 'unknown',
    'versions': ', '.join(versions),
    'machine': ', '.join(
      [processor.name(), f'{os.cpu_count()} cores', *devices.gpu_names()]
    ),
    'processor': processor.model(),
    'instructions': processor.instructions(),
    'switches': _switches(),
    'tensorflow_build': _build(),
  }


def _switches() -> str:
  """Returns whether oneDNN is on, and the variables that limit kernels."""
  named = [f'{k}={os.environ[k]}' for k in _LIMITS if os.environ.get(k)]
  return ' '.join([f'oneDNN {"on" if onednn.is_on() else "off"}', *named])


def _build() -> str:
  """Returns TensorFlow's source version, compiler and kind of devices."""
  kind = 'GPU' if tf.test.is_built_with_gpu_support() else 'CPU'
  version = tf.version
  return f'{version.GIT_VERSION}, gcc {version.COMPILER_VERSION}, {kind}'
