"""Plans a run: which code makes the fastest step on a network."""

import dataclasses

from terngrad import errors
from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options

codec_table = lazy.module('terngrad.measure.codec_table')
planning = lazy.module('terngrad.measure.planning')
tables = lazy.module('terngrad.measure.tables')

USAGE = """\
{program}: which gradient code makes the fastest step on a network.

  {program} --net=alexnet --seconds=0.25 --bandwidth=1e9 --workers=4
  {program} --elements=25.6e6 --seconds=0.4 --bandwidth=1e8 --workers=8 \\
      --codecs=ternary --codecs=error_feedback+stc --output=plans

--seconds is what a worker's step takes without any exchange, as training on one
machine shows. Coding is timed here, on a million elements; bytes are those that
the exchanges count; every hop waits --latency. The table has the parts of a
step for each code, the fastest first, what it gains over float32 and up to
which bandwidth it gains at all; --output writes it with a plot over bandwidth
and workers. A model: measure_exchange measures.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """The flags."""

  net: str = option('', 'Net whose variables are coded.', 'model')
  elements: float = option(
    0.0, 'In place of --net: parameters, as matrices of 1,024 rows.', 'model'
  )
  seconds: float = option(
    0.0, 'Seconds of computing in a step of one worker.', 'run'
  )
  bandwidth: float = option(1e9, 'Bits a second of a worker.', 'cluster')
  latency: float = option(
    5e-5, 'Seconds from one worker to another.', 'cluster'
  )
  workers: int = option(2, 'Workers, each on a machine.', 'cluster')
  overlap: float = option(
    0.0,
    'Part of the computing during which messages travel, 0 to 1: some 0.6 with '
    '--bytes_per_bucket.',
    'cluster',
  )
  codecs: tuple = option(
    (
      'fp16',
      'ternary',
      'eden:bits=2',
      'minmax:bits=4',
      'thc',
      'error_feedback+signsgd',
      'error_feedback+topk',
      'error_feedback+stc',
      'error_feedback+powersgd:rank=1',
      'error_feedback+powersgd:rank=4',
    ),
    "Codes, as the trainers' --codec spells them; repeat for several.",
    'codes',
    repeated=True,
  )
  rounds: int = option(5, 'Rounds of timing each code.', 'run')
  output: str = option('', 'Folder for plan.csv and plan.png.', 'run')


def act(values):
  """Prints the table, and writes it where a folder is named."""
  _check(values)
  network = planning.Network(values.bandwidth, values.latency, values.workers)
  if values.net:
    (shapes,) = codec_table.cases((), (values.net,)).values()
  else:
    shapes = [(1024, max(1, round(values.elements / 1024)))]
  with errors.as_config_error():
    costs = {
      text: planning.coding(text, values.rounds)
      for text in dict.fromkeys([planning.FLOAT32, *values.codecs])
    }
  known = values.codecs, shapes, values.seconds, network, costs, values.overlap
  table = planning.table(*known)
  command.say(table.to_string(index=False, float_format='{:.4g}'.format))
  best = table.iloc[0]
  command.say(
    f'fastest: {best["codec"]}, {best["step"]:.3g} s a step, '
    f'{best["speed-up"]:.2f} times as fast as float32'
  )
  if values.output:
    path = tables.write(values.output, 'plan', table, planning.chart(*known))
    command.say(f'plot: {path}')


def _check(values):
  if bool(values.net) == bool(values.elements):
    raise errors.ConfigError(
      f'net: expected it or --elements, received {values.net!r} and '
      f'{values.elements:g}. Give --net=alexnet, or --elements=61e6.'
    )
  for name in ('elements', 'seconds', 'latency'):
    options.at_least(name, getattr(values, name), 0)
  options.at_least('bandwidth', values.bandwidth, 1)
  options.at_least('workers', values.workers, 1)
  options.at_least('rounds', values.rounds, 1)
  options.in_range('overlap', values.overlap, 0, 1)
  if not values.seconds:
    raise errors.ConfigError(
      'seconds: expected those of a step of one worker without exchange, '
      'received 0. Train a few steps on one machine and read sec/batch.'
    )


COMMAND = command.Command(USAGE, Flags, act)
