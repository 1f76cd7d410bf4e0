"""Measures how far codes move the mean of real gradients."""

import dataclasses

from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options

tables = lazy.module('terngrad.measure.tables')
variance = lazy.module('terngrad.measure.variance')

USAGE = """\
{program}: measures how far codes move the mean of real gradients.

  {program} --gradients=lenet=G.npz --output=O

The files are those of `terngrad report gradients`. For every codec: bits an
element; the squared error of one worker's gradient and that of the workers'
mean, both over the mean square of a worker's gradient; how often less than
plain TernGrad's the latter is; and by how much the mean is shortened, which is
the bias of clipping.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """The flags."""

  gradients: tuple = option(
    (), 'NAME=FILE, repeat for several.', 'data', repeated=True
  )
  codecs: tuple = option(
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
    "Codecs, as the trainers' --codec spells them; repeat for several.",
    'codes',
    repeated=True,
  )
  draws: int = option(16, 'How often the gradients are sent.', 'run')
  output: str = option(
    '', 'Folder for measure_variance.csv and measure_variance.png.', 'run'
  )


def act(values):
  """Prints the table, and writes it where a folder is named."""
  options.at_least('draws', values.draws, 1)
  pairs = [
    command.named_path('gradients', item, 'FILE', 'lenet=gradients.npz')
    for item in values.gradients
  ]
  files = [(name, [*variance.read(path).values()]) for name, path in pairs]
  table = variance.table(files, values.codecs, values.draws)
  command.say(table.round(4).to_string(index=False))
  if values.output:
    chart = variance.chart(table)
    tables.write(values.output, 'measure_variance', table.round(5), chart)


COMMAND = command.Command(USAGE, Flags, act, required=('gradients',))
