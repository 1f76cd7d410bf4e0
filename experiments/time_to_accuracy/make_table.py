"""Computes steps, bytes and seconds on a network to equal accuracy.

python experiments/time_to_accuracy/make_table.py [FOLDER [RUNS]]

writes table.csv and whole.csv. Accuracies are those of ../cifar10_causes, and
seconds of whole steps those of starts.csv, to which new starts in RUNS are
added first (NET/RATEmbit/batch_B/start_K/measure_exchange.csv); see README.md.
"""

import pathlib
import sys

import numpy as np
import pandas as pd

from experiments.network import join_starts
from slim.datasets.records import disk
from terngrad.report import sweep
from terngrad.report.statistics import intervals

_FOLDER = pathlib.Path(__file__).parent
_STARTS = 'starts.csv'
_CAUSES = _FOLDER.parent / 'cifar10_causes'
_ELEMENTS = 1_068_298  # parameters of cifar10_alexnet
_RATES = (10, 100, 1000)  # Mbit/s
# Variants of the sweep with learning rate 2e-4, and with 4e-4.
_CODES = {
  'float32': (
    'eden3',
    'powersgd_rank2',
    'error_feedback_clipped',
    'stc',
    'stratified',
    'ternary',
  ),
  'float32_fast': ('ternary_fast', 'ternary_fast_double'),
}
# The cases of starts.csv: these variants, or float32.
_CASES = {
  'eden3': 'eden3',
  'powersgd_rank2': 'error_feedback+powersgd:rank=2',
  'error_feedback_clipped': 'error_feedback+ternary:clip_factor=1',
  'stc': 'error_feedback+stc:ratio=0.01',
  'stratified': 'ternary:dither=stratified',
  'ternary': 'ternary',
  'ternary_fast': 'ternary',
  'ternary_fast_double': 'ternary',
}
_FLOAT32 = 'identity'
# The same run of float32, continued.
_CONTINUED = {'float32_fast': 'float32_fast_double'}


def steps_to(
  curves: pd.DataFrame, variant: str, seed: int, accuracy: float
) -> float:
  """Interpolates the steps after which a run had an accuracy.

  Returns:
    NaN if the run has no checkpoint below, or none above the accuracy.
  """
  names = variant, _CONTINUED.get(variant, variant)
  chosen = curves['variant'].isin(names) & (curves['seed'] == seed)
  curve = curves[chosen].sort_values('steps')
  # As accuracies of checkpoints waver, the first crossing counts.
  values, steps = curve['accuracy'].to_numpy(), curve['steps'].to_numpy()
  for i in range(1, len(values)):
    if values[i - 1] <= accuracy <= values[i]:
      ends = values[i - 1 : i + 1], steps[i - 1 : i + 1]
      return float(np.interp(accuracy, *ends))
  return float('nan')


def rows() -> list[dict[str, object]]:
  """Returns a row for each run of a code that float32's curve covers."""
  runs = sweep.read(_CAUSES / 'results.csv')
  curves = pd.read_csv(_CAUSES / 'checkpoints.csv')
  bits = runs.groupby('variant')['bits_per_element'].last()
  found: list[dict[str, object]] = []
  pairs = [(code, floats) for floats in _CODES for code in _CODES[floats]]
  for variant, baseline in pairs:
    for run in runs[runs['variant'] == variant].to_dict('records'):
      floats = steps_to(curves, baseline, run['seed'], run['accuracy'])
      if np.isnan(floats):
        continue
      sent = [
        steps * _ELEMENTS * bits[name] / 8
        for name, steps in ((variant, run['steps']), (baseline, floats))
      ]
      found.append(
        {
          'code': variant,
          'seed': run['seed'],
          'accuracy': run['accuracy'],
          'steps': run['steps'],
          'float32 steps': round(floats),
          'steps ratio': round(run['steps'] / floats, 2),
          'MB': round(sent[0] / 1e6),
          'float32 MB': round(sent[1] / 1e6),
        }
        | {
          f'{name}s at {rate} Mbit/s': round(total * 8 / rate / 1e6, 1)
          for rate in _RATES
          for name, total in zip(('', 'float32 '), sent, strict=True)
        }
      )
  return found


def whole_rows(starts: pd.DataFrame) -> list[dict[str, object]]:
  """Returns a row for each row of `rows`, rate of the network and processor.

  Args:
    starts: a row for each case and start, with the seconds of a step.

  Returns:
    Seconds are means over the starts. The ratio is the geometric mean of the
    starts' ratios, with its 95 % interval; the steps are taken as exact.
  """
  found: list[dict[str, object]] = []
  conditions = starts.groupby(['mbit_s', 'processor'], sort=False)
  for (rate, processor), table in conditions:
    seconds = table.pivot(index='start', columns='case', values='seconds')
    for row in rows():
      code, floats = seconds[_CASES[str(row['code'])]], seconds[_FLOAT32]
      steps = float(row['steps']) / float(row['float32 steps'])
      center, _, half = intervals.interval(np.log(code / floats * steps))
      found.append(
        {name: row[name] for name in ('code', 'seed', 'accuracy')}
        | {
          'Mbit/s': rate,
          'processor': processor,
          'starts': len(seconds),
          's a step': round(code.mean(), 4),
          'float32 s a step': round(floats.mean(), 4),
          'hours': round(code.mean() * float(row['steps']) / 3600, 3),
          'float32 hours': round(
            floats.mean() * float(row['float32 steps']) / 3600, 3
          ),
          'time ratio': round(float(np.exp(center)), 3),
          'low': round(float(np.exp(center - half)), 3),
          'high': round(float(np.exp(center + half)), 3),
        }
      )
  return found


def main() -> None:
  """Writes the tables into the folder of the argument, or of the script."""
  folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else _FOLDER
  path = folder / _STARTS
  starts = pd.read_csv(path) if path.exists() else pd.DataFrame()
  if len(sys.argv) > 2:
    starts = join_starts.add(
      starts, join_starts.read(pathlib.Path(sys.argv[2]))
    )
    disk.write_text(path, starts.to_csv(index=False, float_format='%.9g'))
    starts = pd.read_csv(path)
  tables = {'table.csv': rows(), 'whole.csv': whole_rows(starts)}
  for name, table in tables.items():
    disk.write_text(folder / name, pd.DataFrame(table).to_csv(index=False))


if __name__ == '__main__':
  main()
