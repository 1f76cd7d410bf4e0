r"""Compares training runs: a table and a plot of their curves.

  python -m terngrad.bin.compare_runs --output=O \
      --runs=float32=DIR1,ternary=DIR2

A run's folder holds its --train_dir as `train` and, where it was evaluated, its
--eval_dir as `eval`.
"""

import os
import sys

import pandas as pd
from absl import app
from absl import flags

from terngrad.report import comparison
from terngrad.training import metrics
from terngrad.training import records

RUNS = flags.DEFINE_list(
  'runs',
  None,
  'NAME=FOLDER of each run, comma separated; the folder holds train and eval.',
)
OUTPUT = flags.DEFINE_string('output', '.', 'Folder for table and plot.')


def main(arguments):
  """Prints the table, writes comparison.csv and comparison.png."""
  if len(arguments) > 1:
    raise app.UsageError(f'Expected flags only, received {arguments[1]!r}.')
  folders = dict(_pair(item) for item in RUNS.value)
  trained = {name: _losses(path) for name, path in folders.items()}
  scored = {name: _scores(path) for name, path in folders.items()}
  os.makedirs(OUTPUT.value, exist_ok=True)
  table = pd.DataFrame(
    comparison.row(name, losses, scored[name])
    for name, losses in trained.items()
  )
  table.to_csv(os.path.join(OUTPUT.value, 'comparison.csv'), index=False)
  path = os.path.join(OUTPUT.value, 'comparison.png')
  comparison.draw(trained, scored, path)
  print(table.to_string(index=False))
  print(f'Curves: {os.path.abspath(path)}')


def _pair(item):
  """(name, folder) of NAME=FOLDER."""
  name, equals, path = item.partition('=')
  if not (name and equals and path):
    raise app.UsageError(
      f'--runs: expected NAME=FOLDER, received {item!r}. Write for example '
      'ternary=runs/ternary.'
    )
  return name, path


def _losses(path):
  """The records of training, at least one."""
  folder = os.path.join(path, 'train')
  found = comparison.of_table(metrics.TRAINING, records.read(folder))
  if not len(found):
    raise app.UsageError(
      f'{folder}: expected a {records.FILE_NAME} with losses, received none. '
      'Give the folder of a run that has begun.'
    )
  return found


def _scores(path):
  """The records of evaluation, possibly none."""
  found = records.read(os.path.join(path, 'eval'))
  return comparison.of_table(metrics.EVALUATION, found)


if __name__ == '__main__':
  flags.mark_flag_as_required('runs')
  sys.exit(app.run(main))
