"""Measures the error that codecs add to the mean of real gradients."""

import dataclasses

from terngrad import lazy
from terngrad import quiet
from terngrad.cli import command
from terngrad.codec.methods import registry
from terngrad.config import options

tables = lazy.module('terngrad.measure.tables')
variance = lazy.module('terngrad.measure.variance')
variance_plot = lazy.module('terngrad.measure.variance_plot')

USAGE = """\
{program}: measures the error that codes add to the mean of real gradients.

  {program} --gradients=lenet=G.npz --output=O

The files are those of `terngrad report gradients`, or of numpy.savez with one
array [workers, ...] per variable. For every code, method or wrapper, in its
first step: bits per element, counted from the payloads; the squared errors of
one worker's gradient and of the workers' mean, both divided by the mean square
of a worker's gradient, with standard errors over the draws; the part of the
error of the mean that is equal in all draws, which averaging over draws does
not remove; by how much the mean is shortened; and how many times smaller than
with plain TernGrad the error of the mean is. --codecs=all measures every kind
of code.

A method without `estimate` decodes one worker's words alone. A dash in the
column `one` means that this is impossible, and a line below says why.
"""

option = options.option
ALL = 'all'


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureVarianceFlags:
  """The flags of `terngrad measure variance`."""

  gradients: tuple[str, ...] = option(
    (), 'NAME=FILE of gradients; repeat for several.', 'data', repeated=True
  )
  codecs: tuple[str, ...] = option(
    (
      'ternary',
      'ternary:clip_factor=0',
      'ternary:dither=stratified',
      'ternary:sharing=requantize',
      'ternary:group_size=4096',
      'ternary:group_size=512',
      'ternary:group_size=512,dither=stratified',
      'ternary:clip_factor=0,group_size=512',
      'ternary:clip_factor=0,group_size=64',
      'ternary:clip_factor=0,group_size=64,dither=stratified',
      'eden3',
      'fp16',
    ),
    'Codes, NAME[:option=value,...]; repeat for several. all: every kind. '
    '{codecs}',
    'codes',
    repeated=True,
  )
  draws: int = option(
    16, 'How often the gradients are encoded, with new random numbers.', 'run'
  )
  output: str = option(
    '', 'Folder for measure_variance.csv and measure_variance.png.', 'run'
  )


def act(values: MeasureVarianceFlags) -> None:
  """Prints the table, and writes it if --output names a directory."""
  command.at_least(1, values, 'draws')
  paths = command.named_paths(
    'gradients', values.gradients, 'FILE', 'lenet=gradients.npz'
  )
  files = [
    (name, [*variance.read(path).values()]) for name, path in paths.items()
  ]
  codecs = registry.list_kinds() if ALL in values.codecs else values.codecs
  with quiet.suppressed_retracing_warnings():
    table = variance.table(files, codecs, values.draws)
  command.say(table.round(4).to_string(index=False, na_rep='-'))
  for note in variance.notes(table):
    command.say(note)
  if values.output:
    chart = variance_plot.chart(table)
    tables.write(values.output, 'measure_variance', table.round(5), chart)


COMMAND = command.Command(
  USAGE,
  MeasureVarianceFlags,
  act,
  required=('gradients',),
  packages=('pandas', 'tqdm'),
)
