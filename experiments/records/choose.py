"""Writes final/sweep.ini with the best trial of each entry of both searches.

    python experiments/records/choose.py [--results=FOLDER]

FOLDER holds search/results.csv and search_outer/results.csv; by default it is
the folder of this script. The best trial has the fewest bits a byte on the
validation texts; failed trials have no row. A best trial with the lowest or
highest rate is pointed out.
"""

import argparse
import pathlib
import re
import shlex
from collections.abc import Iterable

import pandas as pd

from terngrad.sweep import definition

HERE = pathlib.Path(__file__).parent
# The final runs have four times the steps of the searches.
FACTOR = 4
HEAD = """\
# The final runs of the table of records: the best trial of each entry of
# ../search and ../search_outer, four times as long (8,192,000 bytes), with
# other seeds. They are scored every 200 steps on the validation texts, and at
# the end once on the test texts. Written by ../choose.py.

[sweep]
program = text
seeds = 2 3 4
baseline = float32

[flags]
--epoch_size = 3200
--eval_subsets = validation

# The parameters themselves: their moving averages are behind.
[eval]
--batch_size = 16
--subset = test
--restore_avg_var = false

[entry]
"""
STEPS = ('--max_steps', '--save_iter')
RATES = ('--initial_learning_rate', '--outer_learning_rate')
# A variant of a search: an entry and a trial.
VARIANT = re.compile(r'(.+)_(r\d+|i\d+_o\d+)')


def best_trials(folder: pathlib.Path, results: pathlib.Path) -> list[str]:
  """Returns a line of final/sweep.ini for each entry of a search.

  Args:
    folder: of the search's definition.
    results: its table of finished runs.

  Raises:
    ValueError: a variant of the definition has another form of name.
  """
  scores = pd.read_csv(results).set_index('variant')['bits_per_byte']
  trials: dict[str, dict[str, definition.Cell]] = {}
  for cell in definition.read(folder).cells:
    matched = VARIANT.fullmatch(cell.variant)
    if not matched:
      raise ValueError(
        f'{folder}: expected variants such as ternary_r2 or diloco_i2_o07, '
        f'received {cell.variant}. Rename it.'
      )
    trials.setdefault(matched[1], {})[cell.variant] = cell
  lines = []
  for entry, cells in trials.items():
    found = scores.reindex([*cells]).dropna().sort_values()
    texts = [f'{name} {score:.4f}' for name, score in found.items()]
    print(
      f'{entry}: {len(found)} of {len(cells)} trials finished, best first, in '
      f'bits a byte: {", ".join(texts)}'
    )
    if not found.empty:
      best = cells[found.index[0]]
      for flag in _edges(best, cells.values()):
        print(f'  {flag} is the lowest or the highest: try two more rates')
      lines.append(f'{entry} = {_final_flags(best)}')
  return lines


def _edges(
  best: definition.Cell, cells: Iterable[definition.Cell]
) -> list[str]:
  """Returns the rates of a trial that are the lowest or highest of an entry."""
  flags = [_flags(cell) for cell in cells]
  found = []
  for name in RATES:
    rates = {float(one[name]) for one in flags if name in one}
    if len(rates) > 1 and float(_flags(best)[name]) in (min(rates), max(rates)):
      found.append(f'{name}={_flags(best)[name]}')
  return found


def _flags(cell: definition.Cell) -> dict[str, str]:
  """Returns the flags of a trial: of two with one name the later one holds."""
  return dict(word.split('=', 1) for word in cell.flags)


def _final_flags(cell: definition.Cell) -> str:
  """Returns the flags of a trial with the steps of the final runs."""
  flags = _flags(cell)
  for name in STEPS:
    flags[name] = str(FACTOR * int(flags[name]))
  return shlex.join(f'{name}={value}' for name, value in flags.items())


def main() -> None:
  """Reads both searches and writes the definition of the final runs."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--results', type=pathlib.Path, default=HERE)
  parser.add_argument('--output', type=pathlib.Path, default=HERE / 'final')
  chosen = parser.parse_args()
  lines = [
    line
    for name in ('search', 'search_outer')
    for line in best_trials(HERE / name, chosen.results / name / 'results.csv')
  ]
  chosen.output.mkdir(parents=True, exist_ok=True)
  (chosen.output / 'sweep.ini').write_text(
    HEAD + '\n'.join(lines) + '\n', encoding='utf-8'
  )


if __name__ == '__main__':
  main()
