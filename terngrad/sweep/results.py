"""What tables say of runs that have ended, and of where they were made."""

import contextlib
import datetime
import importlib.metadata
import os
import pathlib
import platform
import subprocess
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from terngrad import errors
from terngrad.report import sweep as report
from terngrad.sweep import definition
from terngrad.training import metrics
from terngrad.training import records

# In a row, while it has not been written: the rows of `report.CURVES`.
CURVE = 'curve'
# What variants are compared by.
_ACCURACY = metrics.EVALUATION[0]
_PACKAGES = ('terngrad', 'tensorflow', 'keras', 'numpy')

# A line of a table, by column.
Row = dict[str, Any]


def named(what: str, name: str) -> str:
  """What a score is called: as the first one, or with a name of its own."""
  return f'{what}_{name}' if name else what


def row(
  cell: definition.Cell, work: pathlib.Path, scores: Iterable[str], flags: str
) -> Row:
  """The figures of a run that has ended.

  Args:
    cell: the run.
    work: its folder.
    scores: names of its scores; '' is that by which variants are compared.
    flags: with which it ran.
  """
  found = records.read(work / 'train')
  last = [r for r in found if 'total_loss' in r][-1]
  accuracy = {
    named('accuracy', name): records.read(work / named('eval', name))[-1][
      _ACCURACY.name
    ]
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
    'ended': now(),
    'flags': flags,
    CURVE: _curve(cell, found),
  }


def now() -> str:
  """The time as a row says it."""
  return datetime.datetime.now().isoformat(timespec='seconds')


def _curve(
  cell: definition.Cell, trained: Sequence[Mapping[str, Any]]
) -> list[Row]:
  """The points of a run: a row for each epoch, of the first subset scored."""
  subset = next(iter(metrics.epoch_subsets(trained, _ACCURACY)), '')
  name = metrics.epoch_name(subset, _ACCURACY)
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


def read(path: pathlib.Path, columns: Collection[str] = ()) -> list[Row]:
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


def about() -> dict[str, str]:
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


def _processor() -> str:
  """The processor's name, or its architecture."""
  with contextlib.suppress(OSError):
    for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines():
      if line.startswith('model name'):
        return line.partition(':')[2].strip()
  return platform.machine()
