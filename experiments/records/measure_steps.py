r"""Measures steps of the final runs between two hosts; writes steps.csv.

  python experiments/records/measure_steps.py --ratio=10 --computing=0.32 \
      --data_dir=D --work_dir=W --hosts=10.77.0.1:7000,10.77.0.2:7000 \
      --on='ip netns exec host{}'

--on is what starts a command on a host: {} is the host's number. Each host is
one process with one thread. Two have two of the four workers each; the only
worker of SNOO is on the first. Give the links between the hosts the bandwidth
that the script prints before, with --dry_run: that at which 32 bits for each
parameter take --ratio times as long as --computing, the seconds that a host
computes in a step. Measure them on your hosts before: the committed tables have
0.32 s, and their machine computes for 0.19 to 0.24 s.

steps.csv gets a row for each variant (--only: some of them): the seconds from
one exchange to the next, without the first ten and without checkpoints, for
which a process sends its states. Rows of this ratio that it has are not
measured again; further ones must have their bandwidth, processor and switches.
An exchange after local steps is as long as many others, so --updates=14 is
enough for them.
"""

import argparse
import math
import pathlib
import shlex
import sys
from collections.abc import Iterable
from collections.abc import Mapping

import choose
import pandas as pd

from slim.datasets.records import disk
from terngrad.cli import children
from terngrad.cli import command
from terngrad.report.targets import costs
from terngrad.sweep import definition
from terngrad.sweep import results
from terngrad.training import records

HERE = pathlib.Path(__file__).parent
# Parameters of gpt_nano.
ELEMENTS = 1_017_344
# Those of the final runs that would score within the measured time.
LEFT_OUT = '--eval_subsets', '--epoch_size'
# Columns in which the rows of a network are equal.
CONDITIONS = 'mbit_s', 'processor', 'instructions', 'switches'
# Those of a machine, which say nothing about the steps.
PATHS = '--data_dir=', '--train_dir='


def words_of(
  cell: definition.Cell,
  folder: pathlib.Path,
  chosen: argparse.Namespace,
  steps: int,
) -> list[str]:
  """Returns the trainer's arguments for a variant, the same on all hosts.

  Args:
    cell: the variant.
    folder: where it trains.
    chosen: this script's options.
    steps: exchanges; the only checkpoint follows the last one.
  """
  flags = choose.flags_of(cell) | {
    '--max_steps': str(steps),
    '--save_iter': str(steps),
    '--data_dir': str(chosen.data_dir),
    '--train_dir': str(folder),
    '--num_gpus': '1',
    '--threads': '1',
  }
  for name in LEFT_OUT:
    flags.pop(name, None)
  if (workers := int(flags['--num_nodes'])) > 1:
    flags |= {
      '--num_nodes': str(workers // len(chosen.hosts.split(','))),
      '--exchange': 'collective',
      '--worker_hosts': chosen.hosts,
      '--bandwidth': f'{bandwidth(chosen):.0f}',
      '--allow_insecure_network': 'true',
    }
  return [f'{name}={value}' for name, value in flags.items()]


def train(
  cell: definition.Cell,
  folder: pathlib.Path,
  chosen: argparse.Namespace,
  steps: int,
) -> tuple[dict[int, float], str]:
  """Trains a variant on the hosts.

  Args:
    cell: the variant.
    folder: where it trains.
    chosen: this script's options.
    steps: exchanges; the only checkpoint follows the last one.

  Returns:
    {step: seconds from the start of training}, and the flags without paths.

  Raises:
    SystemExit: the folder is not empty, or the training failed.
  """
  if folder.exists() and any(folder.iterdir()):
    # A run that goes on would be timed with its second start.
    sys.exit(
      f'work_dir: expected no earlier run of {cell.variant}, received '
      f'{folder}. Remove it, or give another --work_dir.'
    )
  words = words_of(cell, folder, chosen, steps)
  is_shared = '--exchange=collective' in words
  commands = []
  for host in range(len(chosen.hosts.split(',')) if is_shared else 1):
    own = [f'--task_id={host}'] if is_shared else []
    start = shlex.split(chosen.on.replace('{}', str(host)))
    line = command.line_of('train', 'text', *words, *own)
    commands.append(children.ChildCommand([*start, *line], f'host {host}'))
  if code := children.run(commands):
    sys.exit(code)
  seconds = {
    record['step']: record['seconds']
    for record in records.read(folder)
    if 'seconds' in record
  }
  return seconds, shlex.join(w for w in words if not w.startswith(PATHS))


def measure(
  cell: definition.Cell, chosen: argparse.Namespace
) -> dict[str, object]:
  """Measures the steps of a variant; returns its row."""
  folder = chosen.work_dir / f'{cell.variant}_{chosen.ratio:g}'
  seconds, flags = train(cell, folder, chosen, chosen.updates)
  # The trainer records every tenth step.
  first = min(seconds)
  took = seconds[chosen.updates] - seconds[first]
  return {
    'variant': cell.variant,
    'network': network(chosen),
    'mbit_s': mbit_s(chosen),
    'updates': chosen.updates - first,
    'seconds': round(took / (chosen.updates - first), 4),
    'flags': flags,
    **results.provenance(),
  }


def network(chosen: argparse.Namespace) -> str:
  """Names the network, as `terngrad report targets` heads its seconds."""
  hosts = len(chosen.hosts.split(','))
  return f'{hosts} hosts, wire / computing {chosen.ratio:g}'


def bandwidth(chosen: argparse.Namespace) -> float:
  """Returns the bits per second of a link."""
  return costs.bandwidth_of(chosen.ratio, ELEMENTS, chosen.computing)


def mbit_s(chosen: argparse.Namespace) -> float:
  """Returns the megabits per second of a link, as in the table."""
  return round(bandwidth(chosen) / 1e6, 2)


def parser_of(text: str) -> argparse.ArgumentParser:
  """Returns a parser of the options of scripts that train on the hosts."""
  parser = argparse.ArgumentParser(
    description=text, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--ratio', type=_positive, required=True)
  parser.add_argument('--data_dir', type=pathlib.Path, required=True)
  parser.add_argument('--work_dir', type=pathlib.Path, required=True)
  parser.add_argument('--hosts', required=True)
  parser.add_argument('--on', default='')
  parser.add_argument('--computing', type=_positive, required=True)
  parser.add_argument('--sweep', type=pathlib.Path, default=HERE / 'final')
  return parser


def _positive(text: str) -> float:
  """Returns the number of an option that must be above 0 and finite."""
  number = float(text)
  if not 0 < number < math.inf:
    raise argparse.ArgumentTypeError(
      f'expected a finite number above 0, received {text}.'
    )
  return number


def check_hosts(
  cells: Iterable[definition.Cell],
  chosen: argparse.Namespace,
  parser: argparse.ArgumentParser,
) -> None:
  """Exits if the hosts cannot have equally many workers of each variant."""
  hosts = len(chosen.hosts.split(','))
  for cell in cells:
    workers = int(choose.flags_of(cell)['--num_nodes'])
    if workers > 1 and workers % hosts:
      parser.error(
        f'--hosts: expected a number of hosts that divides the {workers} '
        f'workers of {cell.variant}, received {hosts}. Give fewer or more.'
      )


def read_rows(path: pathlib.Path) -> list[dict[str, object]]:
  """Returns the rows of a table, as text; none if there is no table."""
  if not path.exists():
    return []
  return pd.read_csv(path, dtype=str, keep_default_na=False).to_dict('records')


def check_conditions(
  rows: Iterable[Mapping[str, object]],
  chosen: argparse.Namespace,
  path: pathlib.Path,
  advice: str,
) -> None:
  """Exits if the table has rows of this network under other conditions.

  Args:
    rows: rows of steps.csv.
    chosen: this script's options.
    path: the table, for the message.
    advice: ends the message.
  """
  here = {'mbit_s': mbit_s(chosen), **results.provenance()}
  for row in rows:
    if row['network'] == network(chosen):
      for name in CONDITIONS:
        if row[name] != str(here[name]):
          sys.exit(
            f'steps: expected rows with equal {", ".join(CONDITIONS)} for '
            f'{network(chosen)}, received {name} {here[name]!r} here, and '
            f'{row[name]!r} for {row["variant"]} in {path}. {advice}'
          )


def main() -> None:
  """Measures the missing rows."""
  parser = parser_of(__doc__)
  parser.add_argument('--updates', type=int, default=30)
  parser.add_argument('--only', default='', metavar='VARIANT,...')
  parser.add_argument('--output', type=pathlib.Path, default=HERE / 'steps.csv')
  parser.add_argument('--dry_run', action='store_true')
  chosen = parser.parse_args()
  if chosen.updates <= 10:
    parser.error(
      f'--updates: expected more than 10, received {chosen.updates}. The first '
      'ten are left out.'
    )
  print(f'Links: {mbit_s(chosen):.2f} Mbit/s')
  rows = read_rows(chosen.output)
  known = {(row['variant'], row['network']) for row in rows}
  cells = {cell.variant: cell for cell in definition.read(chosen.sweep).cells}
  only = chosen.only.split(',') if chosen.only else [*cells]
  if unknown := set(only) - cells.keys():
    parser.error(
      f'--only: expected names among {", ".join(cells)}, received '
      f'{", ".join(sorted(unknown))}.'
    )
  check_hosts([cells[name] for name in only], chosen, parser)
  missing = [name for name in only if (name, network(chosen)) not in known]
  if chosen.dry_run or not missing:
    return
  check_conditions(rows, chosen, chosen.output, 'Give another --output.')
  for variant in missing:
    rows.append(measure(cells[variant], chosen))
    disk.write_text(chosen.output, pd.DataFrame(rows).to_csv(index=False))


if __name__ == '__main__':
  main()
