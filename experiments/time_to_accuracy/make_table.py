"""Computes steps, bytes and seconds on a network to equal accuracy.

python experiments/time_to_accuracy/make_table.py [FOLDER]

writes table.csv. Accuracies are those of ../cifar10_causes; see README.md.
"""

import pathlib
import sys

import numpy as np
import pandas as pd

from slim.datasets.records import disk
from terngrad.report import sweep

_FOLDER = pathlib.Path(__file__).parent
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


def main() -> None:
  """Writes the table into the folder of the script, or that of the argument."""
  folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else _FOLDER
  disk.write_text(
    folder / 'table.csv', pd.DataFrame(rows()).to_csv(index=False)
  )


if __name__ == '__main__':
  main()
