"""Writes the accuracy that `terngrad plan` shows, from two committed sweeps.

Each code's accuracy is compared with that of float32 with the same seeds. Left
out are variants that differ from float32 in more than their code, except `dgc`,
whose momentum is that of the workers.
"""

import pathlib
import sys

from slim.datasets.records import disk
from terngrad.measure.planning import accuracy
from terngrad.report import sweep
from terngrad.sweep import definition

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / 'terngrad/measure/planning/accuracy_table.py'
BASELINE = 'float32'
# Flags that a variant may have beside its code.
ALLOWED = {
  'lenet_codecs': {'--optimizer=gd'},
  'cifar10_causes': {'--initial_learning_rate=0.0002'},
}
HEADER = '''\
"""Accuracy of codes, written by experiments/plan_accuracy/make_table.py.

By sweep and code: the difference to float32 in percentage points, half the
width of its 95 % interval (None for one seed), and the number of seeds.
"""

TABLE: dict[str, dict[str, tuple[float, float | None, int]]] = '''


def codes(folder):
  """Returns the codes of a sweep by variant, where only they differ."""
  found = definition.read(folder)
  common = set.intersection(*(set(cell.flags) for cell in found.cells))
  codec = '--codec='
  by_variant = {}
  for cell in found.cells:
    flags = set(cell.flags) - common - ALLOWED[folder.name]
    if len(flags) == 1 and (flag := flags.pop()).startswith(codec):
      by_variant[cell.variant] = flag.removeprefix(codec)
  return by_variant


def differences(folder):
  """Returns the values of `HEADER` for one sweep, by code."""
  by_variant = codes(folder)
  rows = sweep.read(folder / 'results.csv')
  rows = rows[rows['variant'].isin(by_variant)]
  baselines = dict.fromkeys(by_variant, BASELINE)
  table = sweep.summary(rows, baselines).set_index('variant')
  found = {}
  for variant, text in by_variant.items():
    if variant in table.index:
      row = table.loc[variant]
      points, half = row[f'to {BASELINE}'], row['its 95 %']
      # NaN for one seed.
      known = None if half != half else round(float(half), 2)
      found[text] = round(float(points), 2), known, int(row['seeds'])
  return found


def main(target=TARGET):
  """Writes the module."""
  table = {
    name: differences(ROOT / 'experiments' / name) for name in accuracy.SWEEPS
  }
  lines = ['{']
  for name, rows in table.items():
    lines += [
      f'  {name!r}: {{',
      *(f'    {text!r}: {values},' for text, values in rows.items()),
      '  },',
    ]
  disk.write_text(target, HEADER + '\n'.join([*lines, '}', '']))


if __name__ == '__main__':
  main(*sys.argv[1:])
