r"""Trains variants on the hosts until a score; writes cells.csv.

  python experiments/records/run_cells.py --ratio=10 --computing=0.32 \
      --target=2.4 --data_dir=D --work_dir=W \
      --hosts=10.77.0.1:7000,10.77.0.2:7000 --on='ip netns exec host{}' ternary

The options are those of measure_steps.py. Each variant trains from its first
step, with the first seed of the final runs, for the steps with which
targets.csv says that it reaches --target. cells.csv gets its seconds beside
those of targets.csv, and its score on `validation` afterwards. The steps must
have been measured with this processor and its switches (--steps). The two hosts
have two workers each, whose examples are those of the four virtual workers.
"""

import math
import pathlib
import subprocess

import measure_steps
import pandas as pd

from slim.datasets.records import disk
from terngrad.cli import command
from terngrad.sweep import definition
from terngrad.sweep import results
from terngrad.training import records


def score(
  sweep: definition.Definition, data_dir: pathlib.Path, folder: pathlib.Path
) -> float:
  """Returns the bits a byte on `validation` of the checkpoint in a folder."""
  flags = [w for w in sweep.scoring[''] if not w.startswith('--subset=')]
  line = command.line_of(
    'eval',
    sweep.program,
    *flags,
    '--subset=validation',
    f'--data_dir={data_dir}',
    f'--checkpoint_dir={folder}',
    f'--eval_dir={folder}/eval',
    '--run_once',
  )
  subprocess.run(line, check=True)
  return records.read(folder / 'eval')[-1]['bits_per_byte']


def main() -> None:
  """Trains the variants, one after the other."""
  here = measure_steps.HERE
  parser = measure_steps.parser_of(__doc__)
  parser.add_argument('variants', nargs='+')
  parser.add_argument('--target', type=float, required=True)
  parser.add_argument(
    '--targets', type=pathlib.Path, default=here / 'targets.csv'
  )
  parser.add_argument('--steps', type=pathlib.Path, default=here / 'steps.csv')
  parser.add_argument('--output', type=pathlib.Path, default=here / 'cells.csv')
  chosen = parser.parse_args()
  network = measure_steps.network(chosen)
  sweep = definition.read(chosen.sweep)
  cells = {cell.variant: cell for cell in reversed(sweep.cells)}
  table = pd.read_csv(chosen.targets)
  table = table[table['bits a byte'] == chosen.target].set_index('variant')
  seconds_column = f'seconds, {network} (measured steps)'
  table = table.reindex(columns=['steps', seconds_column]).dropna()
  if unknown := {*chosen.variants} - ({*table.index} & {*cells}):
    parser.error(
      f'variants: expected some of which {chosen.targets} has steps to '
      f'--target={chosen.target:g} and "{seconds_column}" ('
      f'{", ".join(table.index) or "it has none"}), received '
      f'{", ".join(sorted(unknown))}. Choose among these, or measure the steps '
      'and run `terngrad report targets` first.'
    )
  measure_steps.check_hosts(
    [cells[variant] for variant in chosen.variants], chosen, parser
  )
  rows = measure_steps.read_rows(chosen.output)
  measure_steps.check_conditions(
    measure_steps.read_rows(chosen.steps),
    chosen,
    chosen.steps,
    'Measure this network here, and run `terngrad report targets` again.',
  )
  for variant in chosen.variants:
    expected = table.loc[variant]
    steps = math.ceil(expected['steps'])
    predicted = expected[seconds_column]
    cell = cells[variant]
    cell = cell._replace(flags=(*cell.flags, f'--seed={cell.seed}'))
    folder = chosen.work_dir / f'{variant}_{chosen.ratio:g}_{chosen.target:g}'
    seconds, flags = measure_steps.train(cell, folder, chosen, steps)
    row = {
      'bits a byte': chosen.target,
      'variant': variant,
      'network': network,
      'steps': steps,
      'predicted seconds': round(predicted, 1),
      'seconds': round(seconds[steps], 1),
      'over predicted': round(seconds[steps] / predicted, 3),
      'score': round(score(sweep, chosen.data_dir, folder), 4),
      'flags': flags,
      **results.provenance(),
    }
    rows.append(row)
    disk.write_text(chosen.output, pd.DataFrame(rows).to_csv(index=False))


if __name__ == '__main__':
  main()
