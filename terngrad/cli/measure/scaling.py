"""Measures training speed by the number of devices and processes."""

import dataclasses

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.config import options

scaling = lazy.module('terngrad.measure.scaling')
tables = lazy.module('terngrad.measure.tables')

USAGE = """\
{program}: images per second by the number of devices and of processes.

  {program} --batch_size=32 -- train cifar10 --data_dir=D
  {program} --batch_size=8 --devices=1,2 --processes=1,2,4 --codecs=identity \\
      --codecs=ternary -- train imagenet --net=alexnet --benchmark_mode

After `--` comes a command `train` with its flags. It is run with every number
of devices in one process, and with every number of processes of one device, on
real data or, with its --benchmark_mode, on constant images. In weak scaling
each device gets --batch_size examples per step, in strong scaling all share
--batch_size examples. Each figure is from a separate run of --steps steps; the
steps before the first log line are not timed. On a machine with fewer cores
than devices no speed-up is possible: there the loss of speed shows the cost of
devices and exchange.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureScalingFlags:
  """The flags, and the training command after `--`."""

  batch_size: int = option(32, 'Examples per step of one device.', 'data')
  devices: tuple[str, ...] = option(
    ('1', '2'), 'Numbers of devices in one process.', 'devices'
  )
  processes: tuple[str, ...] = option(
    ('1', '2'), 'Numbers of processes with one device each.', 'cluster'
  )
  codecs: tuple[str, ...] = option(
    ('identity', 'ternary'),
    "Codes, as the trainers' --codec spells them; repeat for several.",
    'codes',
    repeated=True,
  )
  steps: int = option(40, 'Steps of a run, at least 11.', 'run')
  rounds: int = option(1, 'Number of runs of each for the median.', 'run')
  output: str = option('', 'Folder for scaling.csv and scaling.png.', 'run')
  command: tuple[str, ...] = ()


def act(values: MeasureScalingFlags) -> None:
  """Prints the table, and writes it if --output names a directory."""
  if values.command[:1] != ('train',):
    raise flags.UsageError(
      'Expected `-- train DATASET --flag=value ...` after the flags, received '
      f'{" ".join(values.command) or "nothing"!r}. See --help.'
    )
  command.at_least(1, values, 'batch_size', 'rounds')
  command.at_least(scaling.LEAST_STEPS, values, 'steps')
  some = scaling.points(
    sorted({*command.counts('devices', values.devices)}),
    sorted({*command.counts('processes', values.processes)}),
    values.codecs,
  )
  rows = scaling.measure(
    some, values.command, values.batch_size, values.steps, values.rounds
  )
  command.say(rows.to_string(index=False, float_format='{:.2f}'.format))
  if values.output:
    title = f'{" ".join(values.command[:2])}, batch {values.batch_size}'
    chart = scaling.chart(rows, title)
    path = tables.write(values.output, 'scaling', rows, chart)
    command.say(f'plot: {path}')


COMMAND = command.Command(
  USAGE,
  MeasureScalingFlags,
  act,
  rest='command',
  needs_tensorflow=False,
  packages=('pandas', 'matplotlib', 'tqdm'),
)
