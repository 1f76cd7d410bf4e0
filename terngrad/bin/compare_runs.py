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
from matplotlib import figure

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
    _row(name, losses, scored[name]) for name, losses in trained.items()
  )
  table.to_csv(os.path.join(OUTPUT.value, 'comparison.csv'), index=False)
  path = os.path.join(OUTPUT.value, 'comparison.png')
  _plot(trained, scored, path)
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
  found = [r for r in records.read(folder) if 'total_loss' in r]
  if not found:
    raise app.UsageError(
      f'{folder}: expected a {records.FILE_NAME} with losses, received none. '
      'Give the folder of a run that has begun.'
    )
  return pd.DataFrame(found)


def _scores(path):
  """The records of evaluation, possibly none."""
  found = records.read(os.path.join(path, 'eval'))
  return pd.DataFrame([r for r in found if 'precision_at_1' in r])


def _row(name, losses, scores):
  last = losses.iloc[-1]
  row = {
    'gradients': name,
    'steps': int(last['step']),
    'seconds': round(last['seconds'], 1),
    'test accuracy': 'not evaluated',
    'bits/element sent': round(last['bits_per_element'], 2),
  }
  if len(scores):
    row['test accuracy'] = f'{scores.iloc[-1]["precision_at_1"]:.2%}'
  return row


def _plot(trained, scored, path):
  """Loss by step and, where there is any, test accuracy by step."""
  evaluated = any(len(scores) > 1 for scores in scored.values())
  # A figure without pyplot draws on no screen.
  page = figure.Figure(figsize=(12 if evaluated else 7, 4))
  axes = page.subplots(1, 2 if evaluated else 1, squeeze=False)[0]
  for name, losses in trained.items():
    bits = losses['bits_per_element'].iloc[-1]
    axes[0].plot(
      losses['step'],
      losses['entropy_loss_smoothed'],
      label=f'{name}, {bits:.1f} bits/element',
    )
  axes[0].set_yscale('log')
  axes[0].set_ylabel('training cross entropy, smoothed')
  if evaluated:
    for name, scores in scored.items():
      if len(scores):
        axes[1].plot(
          scores['step'], 100 * scores['precision_at_1'], 'o-', label=name
        )
    axes[1].set_ylabel('test accuracy, %')
  for axis in axes:
    axis.set_xlabel('step')
    axis.grid(alpha=0.3)
    axis.legend()
  page.tight_layout()
  page.savefig(path, dpi=120)


if __name__ == '__main__':
  flags.mark_flag_as_required('runs')
  sys.exit(app.run(main))
