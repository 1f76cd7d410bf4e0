"""Compares training runs: a table and a plot of their curves."""

import dataclasses
import os

from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options

comparison = lazy.module('terngrad.report.comparison')
tables = lazy.module('terngrad.measure.tables')

USAGE = """\
{program}: compares training runs in a table and a plot of their curves.

  {program} --output=O --runs=float32=DIR1,ternary=DIR2

The folder of a run is its --train_dir, or the folder that holds it as `train`.
If the run was evaluated, its --eval_dir must be `eval` in that folder, or next
to `train`.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportCompareFlags:
  """The flags of `terngrad report compare`."""

  runs: tuple[str, ...] = option(
    (),
    'NAME=FOLDER of each run, separated by commas; FOLDER is its --train_dir, '
    'or holds train and eval. Put an item with commas or outer spaces in '
    'double quotes.',
    'run',
  )
  output: str = option('.', 'Folder for table and plot.', 'run')


def act(values: ReportCompareFlags) -> None:
  """Prints the table, writes comparison.csv and comparison.png."""
  folders = command.named_paths(
    'runs', values.runs, 'FOLDER', 'ternary=runs/ternary'
  )
  runs = {name: comparison.read(path) for name, path in folders.items()}
  table = comparison.table(runs)
  path = tables.write(
    values.output, 'comparison', table, comparison.chart(runs)
  )
  command.say(table.to_string(index=False))
  command.say(f'Curves: {os.path.abspath(path)}')


COMMAND = command.Command(
  USAGE,
  ReportCompareFlags,
  act,
  required=('runs',),
  packages=('pandas', 'matplotlib'),
)
