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
{program}: shows how clipping and a code change the gradients of each variable.

  {program} --gradients=G.npz --codec=ternary --output=O

Reads a file that `terngrad report gradients` wrote in any step of a run. For
every variable: the share of clipped elements, the norms of the clipped and of
the coded gradient relative to the gradient and their angles to it, and the
share of elements that are decoded as 0. --output receives the table as
histograms.csv, and histograms of the largest variables as histograms.png.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportHistogramsFlags:
  """The flags of `terngrad report histograms`."""

  gradients: str = option('', 'File of gradients, .npz.', 'data')
  worker: int = option(0, 'Index of the worker, from 0.', 'data')
  codec: str = option(
    'ternary', "A code with one message, as the trainers' --codec.", 'codes'
  )
  clip_factor: float = option(
    2.5,
    'Standard deviations at which the gradients of the middle column are '
    'clipped; 0: not at all.',
    'codes',
  )
  output: str = option('', 'Folder for table and plot.', 'run')


def act(values: ReportHistogramsFlags) -> None:
  """Prints the table, and writes it if --output names a directory."""
  command.at_least(0, values, 'clip_factor')
  arrays = variance.read(values.gradients)
  count = len(next(iter(arrays.values())))
  if not 0 <= values.worker < count:
    raise errors.ConfigError(
      f'worker: expected a number from 0 to {count - 1}, received '
      f'{values.worker}. Choose one of the {count} workers of the file.'
    )
  gradients = {name: array[values.worker] for name, array in arrays.items()}
  decoded = histograms.encode_and_decode(values.codec, gradients)
  table = histograms.table(gradients, decoded, values.clip_factor)
  command.say(table.round(4).to_string(index=False))
  if values.output:
    chart = histograms.chart(gradients, decoded, values.clip_factor)
    tables.write(values.output, 'histograms', table.round(5), chart)


COMMAND = command.Command(
  USAGE,
  ReportHistogramsFlags,
  act,
  required=('gradients',),
  packages=('pandas', 'matplotlib'),
)
