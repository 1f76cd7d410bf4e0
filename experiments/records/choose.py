"""Writes final/sweep.ini with the best trial of each entry of both searches.

    python experiments/records/choose.py [--results=FOLDER]

FOLDER holds search/results.csv and search_outer/results.csv; by default it is
the folder of this script. The best trial has the fewest bits a byte on the
validation texts; failed trials have no row.
"""

import argparse
import configparser
import pathlib

import pandas as pd

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
--net = gpt_nano
--corpus = 56bfd3e29861f6f7
--num_gpus = 1
--num_nodes = 4
--jit_compile = true
--epoch_size = 3200
--eval_subsets = validation

# The parameters themselves: their moving averages are behind.
[eval]
--batch_size = 16
--subset = test
--restore_avg_var = false

[entry]
"""
# Flags that all final runs share.
SHARED = ('net', 'corpus', 'num_gpus', 'num_nodes', 'jit_compile')
SHARED += ('epoch_size', 'eval_subsets')
STEPS = ('max_steps', 'save_iter')


def read(folder: pathlib.Path) -> configparser.ConfigParser:
  """Reads the definition of a search."""
  parser = configparser.ConfigParser(interpolation=None, delimiters=('=',))
  parser.optionxform = str  # type: ignore[method-assign,assignment]
  parser.read(folder / 'sweep.ini', encoding='utf-8')
  return parser


def flags_of(*texts: str) -> dict[str, str]:
  """Joins flags; later ones replace earlier ones."""
  words = [word.removeprefix('--') for text in texts for word in text.split()]
  return dict(word.split('=', 1) for word in words)


def best_trials(folder: pathlib.Path, results: pathlib.Path) -> list[str]:
  """Returns a line of final/sweep.ini for each entry of a search."""
  parser = read(folder)
  axis = 'rate' if parser.has_section('rate') else 'rates'
  rows = pd.read_csv(results).set_index('variant')['bits_per_byte']
  common = ' '.join(
    f'{name.strip()}={value}' if name.startswith('--') else f'--{name}={value}'
    for name, value in parser['flags'].items()
    if name.strip('- ') not in SHARED and ' ' not in (value or '')
  )
  lines = []
  for entry, words in parser['entry'].items():
    names = [f'{entry}_{trial}' for trial in parser[axis]]
    found = rows.reindex(names).dropna().sort_values()
    if found.empty:
      print(f'{entry}: all trials failed')
      continue
    trial = found.index[0].removeprefix(f'{entry}_')
    scores = ', '.join(
      f'{name.removeprefix(entry + "_")} {value:.4f}'
      for name, value in found.items()
    )
    print(
      f'{entry}: {trial}; {len(found)} of {len(names)} trials finished, bits a '
      f'byte: {scores}'
    )
    flags = flags_of(common, words, parser[axis][trial])
    for name in STEPS:
      flags[name] = str(FACTOR * int(flags[name]))
    text = ' '.join(f'--{name}={value}' for name, value in flags.items())
    lines.append(f'{entry} = {text}')
  return lines


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
