"""Writes the sweeps of the best trial of each entry of both searches.

    python experiments/records/choose.py [--results=FOLDER]

FOLDER holds search/results.csv and search_outer/results.csv; by default it is
the folder of this script. The best trial has the fewest bits a byte on the
validation texts; failed trials have no row. A best trial with the lowest or
highest rate is pointed out. final/sweep.ini has the runs of the table, and
transfer/sweep.ini runs on another text.
"""

import argparse
import fractions
import pathlib
import re
import shlex
from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from terngrad.sweep import definition

HERE = pathlib.Path(__file__).parent
FINAL = """\
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
"""
TRANSFER = """\
# The trials of ../final on another text, for 300 steps (1,228,800 bytes): weak
# evidence of whether they suit it. The text is English, the manuals of Perl
# 5.36.0-7+deb12u3 in Debian's packages perl-doc and perl-modules-5.36. Written
# by ../choose.py.
#
#   terngrad convert text --source=/usr/share/perl --suffixes=.pod \\
#     --output_directory=D

[sweep]
program = text
seeds = 2
baseline = float32
"""
EVALUATION = """
# The parameters themselves: their moving averages are behind.
[eval]
--batch_size = 16
--subset = test
--restore_avg_var = false

[entry]
"""


class Chosen(NamedTuple):
  """A sweep of the best trials.

  Attributes:
    head: its first sections.
    factor: its steps, over those of the searches.
    flags: flags that its runs have in place of the trials'.
  """

  head: str
  factor: fractions.Fraction
  flags: dict[str, str]


SWEEPS = {
  'final': Chosen(FINAL, fractions.Fraction(4), {}),
  'transfer': Chosen(
    TRANSFER, fractions.Fraction(3, 5), {'--corpus': '422697bba5e60599'}
  ),
}
STEPS = ('--max_steps', '--save_iter')
RATES = ('--initial_learning_rate', '--outer_learning_rate')
# A variant of a search: an entry and a trial.
VARIANT = re.compile(r'(.+)_(r\d+|i\d+_o\d+)')


def best_trials(
  folder: pathlib.Path, results: pathlib.Path
) -> dict[str, definition.Cell]:
  """Returns the best trial of each entry of a search.

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
  chosen = {}
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
        print(f'  {flag} is the lowest or the highest: try a rate beyond')
      chosen[entry] = best
  return chosen


def _edges(
  best: definition.Cell, cells: Iterable[definition.Cell]
) -> list[str]:
  """Returns the rates of a trial that are the lowest or highest of an entry."""
  flags = [flags_of(cell) for cell in cells]
  found = []
  for name in RATES:
    rates = {float(one[name]) for one in flags if name in one}
    if len(rates) > 1 and float(flags_of(best)[name]) in (
      min(rates),
      max(rates),
    ):
      found.append(f'{name}={flags_of(best)[name]}')
  return found


def flags_of(cell: definition.Cell) -> dict[str, str]:
  """Returns the flags of a trial: of two with one name the later one holds."""
  return dict(word.split('=', 1) for word in cell.flags)


def line_of(entry: str, cell: definition.Cell, chosen: Chosen) -> str:
  """Returns the line of a trial in a sweep of the best trials."""
  flags = flags_of(cell) | chosen.flags
  for name in STEPS:
    flags[name] = str(chosen.factor * int(flags[name]))
  words = [f'{name}={value}' for name, value in flags.items()]
  return f'{entry} = {shlex.join(words)}'


def main() -> None:
  """Reads both searches and writes the definitions of both sweeps."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--results', type=pathlib.Path, default=HERE)
  parser.add_argument('--output', type=pathlib.Path, default=HERE)
  given = parser.parse_args()
  trials: dict[str, definition.Cell] = {}
  for name in ('search', 'search_outer'):
    table = given.results / name / 'results.csv'
    trials |= best_trials(HERE / name, table)
  for name, chosen in SWEEPS.items():
    lines = [line_of(entry, cell, chosen) for entry, cell in trials.items()]
    folder = given.output / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'sweep.ini').write_text(
      chosen.head + EVALUATION + '\n'.join(lines) + '\n', encoding='utf-8'
    )


if __name__ == '__main__':
  main()
