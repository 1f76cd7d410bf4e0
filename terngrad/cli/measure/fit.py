"""Measures steps of Keras's fit, as ratios in one run."""

import dataclasses

from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options

devices = lazy.module('terngrad.cluster.devices')
fit = lazy.module('terngrad.measure.keras.fit')
tables = lazy.module('terngrad.measure.tables')

USAGE = """\
{program}: measures steps of Keras's fit, as ratios in one run.

  {program} --codec=ternary --codec=error_feedback+topk

The net of Keras's MNIST example under MirroredStrategy, on a constant batch:
with Adam alone, and with CompressedOptimizer around it. Fits take turns, round
by round; a ratio is that to Adam alone in the same round.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """The flags."""

  codec: tuple = option(
    ('identity', 'ternary', 'error_feedback+topk:ratio=0.01'),
    'See the trainers; repeat for several.',
    'codes',
    repeated=True,
  )
  batch_size: int = option(128, 'Examples a step, of all replicas.', 'data')
  num_gpus: int = option(2, 'Devices with a replica each.', 'devices')
  rounds: int = option(7, 'Rounds to take the median of.', 'run')
  steps: int = option(40, 'Steps of each fit.', 'run')
  output: str = option('', 'Folder for measure_fit.csv.', 'run')


def act(values):
  """Prints the table, and writes it where a folder is named."""
  for name in ('batch_size', 'num_gpus', 'rounds', 'steps'):
    options.at_least(name, getattr(values, name), 1)
  measured = fit.table(
    values.codec,
    devices.tower_devices(values.num_gpus),
    values.batch_size,
    values.rounds,
    values.steps,
  )
  command.say(measured.round(3).to_string(index=False))
  if values.output:
    tables.write(values.output, 'measure_fit', measured)


COMMAND = command.Command(USAGE, Flags, act, required=('codec',))
