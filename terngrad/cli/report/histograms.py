"""Plots the distributions of real gradients before and after coding."""

import dataclasses

from terngrad import errors
from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options

histograms = lazy.module('terngrad.report.histograms')
tables = lazy.module('terngrad.measure.tables')
variance = lazy.module('terngrad.measure.variance')

USAGE = """\
{program}: what clipping and a code do to the gradients of each variable.

  {program} --gradients=G.npz --codec=ternary --output=O

Takes a file that `terngrad report gradients` wrote in any step of a run. For
every variable: how many elements are beyond the clip, how long clipped and
coded gradients are beside the gradient itself and at which angle to it, how
many elements arrive as 0. --output gets that as histograms.csv, and histograms
of the largest variables as histograms.png.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """The flags of `terngrad report histograms`."""

  gradients: str = option('', 'File of gradients, .npz.', 'data')
  worker: int = option(0, 'Whose gradients of the file.', 'data')
  codec: str = option(
    'ternary', "A code of one message, as the trainers' --codec.", 'codes'
  )
  clip_factor: float = option(
    2.5, 'Standard deviations at which the middle column is cut.', 'codes'
  )
  output: str = option('', 'Folder for table and chart.', 'run')


def act(values: Flags) -> None:
  """Prints the table, and writes it if --output names a directory."""
  arrays = variance.read(values.gradients)
  count = len(next(iter(arrays.values())))
  if not 0 <= values.worker < count:
    raise errors.ConfigError(
      f'worker: expected a number from 0 to {count - 1}, received '
      f'{values.worker}. The file has {count} workers.'
    )
  gradients = {name: array[values.worker] for name, array in arrays.items()}
  arrived = histograms.coded(values.codec, gradients)
  table = histograms.table(gradients, arrived, values.clip_factor)
  command.say(table.round(4).to_string(index=False))
  if values.output:
    chart = histograms.chart(gradients, arrived, values.clip_factor)
    tables.write(values.output, 'histograms', table.round(5), chart)


COMMAND = command.Command(USAGE, Flags, act, required=('gradients',))
